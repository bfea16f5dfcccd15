#!/bin/bash
cd /app || exit 1
./go silver
./go tiger
./go castle
./go planet
./go cloud
./go stone
