#!/bin/bash
cd /app || exit 1
./go silver
./go lazy
./go silent
./go orange
./go winter
./go cloud
