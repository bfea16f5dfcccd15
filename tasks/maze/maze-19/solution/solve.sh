#!/bin/bash
cd /app || exit 1
./go cloud
./go seven
./go orange
./go river
./go purple
./go summer
