#!/bin/bash
cd /app || exit 1
./go castle
./go tiger
./go green
./go bright
./go ocean
./go summer
