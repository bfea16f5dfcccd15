#!/bin/bash
cd /app || exit 1
./go golden
./go island
./go tiger
./go silver
./go ocean
./go apple
