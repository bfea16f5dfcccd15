#!/bin/bash
cd /app || exit 1
./go bright
./go winter
./go tiger
./go island
./go silent
./go castle
