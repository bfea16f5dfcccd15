#!/bin/bash
cd /app || exit 1
./go island
./go green
./go purple
./go desert
./go seven
./go lemon
