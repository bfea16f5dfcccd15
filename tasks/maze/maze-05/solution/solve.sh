#!/bin/bash
cd /app || exit 1
./go lemon
./go rocket
./go planet
./go desert
./go quick
./go island
