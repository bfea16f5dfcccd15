#!/bin/bash
cd /app || exit 1
./go apple
./go cloud
./go forest
./go summer
./go quick
./go silver
