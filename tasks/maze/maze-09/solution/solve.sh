#!/bin/bash
cd /app || exit 1
./go winter
./go desert
./go golden
./go island
./go orange
./go purple
