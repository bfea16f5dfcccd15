#!/bin/bash
cd /app || exit 1
./go garden
./go quick
./go lemon
./go forest
./go copper
./go silent
