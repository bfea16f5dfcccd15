#!/bin/bash
cd /app || exit 1
./go tiger
./go cloud
./go desert
./go green
./go summer
./go apple
