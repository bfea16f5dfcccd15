#!/bin/bash
cd /app || exit 1
./go seven
./go golden
./go copper
./go stone
./go rocket
./go island
