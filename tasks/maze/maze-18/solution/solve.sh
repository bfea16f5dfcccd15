#!/bin/bash
cd /app || exit 1
./go stone
./go summer
./go cloud
./go silver
./go lemon
./go golden
