#!/bin/bash
cd /app || exit 1
./go bright
./go silver
./go cloud
./go garden
./go golden
./go planet
