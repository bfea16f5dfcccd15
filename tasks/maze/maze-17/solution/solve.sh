#!/bin/bash
cd /app || exit 1
./go golden
./go lemon
./go silver
./go rocket
./go bright
./go orange
