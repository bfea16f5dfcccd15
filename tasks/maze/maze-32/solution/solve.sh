#!/bin/bash
cd /app || exit 1
./go tiger
./go ocean
./go summer
./go river
./go green
./go planet
