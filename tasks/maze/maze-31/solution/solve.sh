#!/bin/bash
cd /app || exit 1
./go golden
./go rocket
./go winter
./go lemon
./go forest
./go seven
