#!/bin/bash
cd /app || exit 1
./go golden
./go forest
./go silent
./go orange
./go summer
./go stone
