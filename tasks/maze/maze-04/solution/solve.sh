#!/bin/bash
cd /app || exit 1
./go paper
./go winter
./go quick
./go golden
./go cloud
./go stone
