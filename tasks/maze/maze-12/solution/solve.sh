#!/bin/bash
cd /app || exit 1
./go window
./go castle
./go rocket
./go quick
./go winter
./go lemon
