#!/bin/bash
cd /app || exit 1
./go summer
./go ocean
./go quick
./go tiger
./go apple
./go golden
