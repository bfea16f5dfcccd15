#!/bin/bash
cd /app || exit 1
./go winter
./go golden
./go planet
./go bright
./go orange
./go quick
