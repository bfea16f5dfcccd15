#!/bin/bash
cd /app || exit 1
./go cloud
./go stone
./go golden
./go silver
./go forest
./go ocean
