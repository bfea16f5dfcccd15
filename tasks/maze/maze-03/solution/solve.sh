#!/bin/bash
cd /app || exit 1
./go summer
./go bright
./go stone
./go cloud
./go lazy
./go quick
