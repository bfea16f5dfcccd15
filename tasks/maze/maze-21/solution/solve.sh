#!/bin/bash
cd /app || exit 1
./go purple
./go orange
./go planet
./go bright
./go seven
./go silver
