#!/bin/bash
cd /app || exit 1
./go tiger
./go copper
./go golden
./go summer
./go silver
./go window
