#!/bin/bash
cd /app || exit 1
./go silver
./go ocean
./go copper
./go garden
./go purple
./go golden
