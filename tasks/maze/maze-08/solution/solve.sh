#!/bin/bash
cd /app || exit 1
./go desert
./go silver
./go winter
./go summer
./go castle
./go island
