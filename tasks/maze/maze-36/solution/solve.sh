#!/bin/bash
cd /app || exit 1
./go cloud
./go forest
./go garden
./go paper
./go island
./go quick
