#!/bin/bash
cd /app || exit 1
./go winter
./go golden
./go seven
./go quick
./go summer
./go lazy
