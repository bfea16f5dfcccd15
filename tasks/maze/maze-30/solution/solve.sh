#!/bin/bash
cd /app || exit 1
./go copper
./go green
./go garden
./go summer
./go winter
./go golden
