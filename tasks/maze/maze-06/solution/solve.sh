#!/bin/bash
cd /app || exit 1
./go island
./go ocean
./go bright
./go quick
./go summer
./go silent
