#!/bin/bash
cd /app || exit 1
./go winter
./go silver
./go lazy
./go golden
./go forest
./go quick
