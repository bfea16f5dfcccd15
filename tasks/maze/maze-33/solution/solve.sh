#!/bin/bash
cd /app || exit 1
./go window
./go planet
./go golden
./go river
./go winter
./go stone
