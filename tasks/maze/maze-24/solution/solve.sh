#!/bin/bash
cd /app || exit 1
./go island
./go silver
./go lemon
./go forest
./go quick
./go golden
