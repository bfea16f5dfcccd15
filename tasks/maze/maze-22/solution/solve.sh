#!/bin/bash
cd /app || exit 1
./go island
./go stone
./go cloud
./go lazy
./go seven
./go silver
