#!/bin/bash
cd /app || exit 1
./go lazy
./go golden
./go planet
./go winter
./go apple
./go summer
