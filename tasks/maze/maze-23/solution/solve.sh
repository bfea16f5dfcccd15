#!/bin/bash
cd /app || exit 1
./go rocket
./go lemon
./go tiger
./go silver
./go golden
./go green
