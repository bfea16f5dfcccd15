#!/bin/bash
cd /app || exit 1
./go rocket
./go silver
./go summer
./go window
./go golden
./go bright
