#!/bin/bash
cd /app || exit 1
./go planet
./go island
./go rocket
./go green
./go river
./go seven
