#!/bin/bash
cd /app || exit 1
./go forest
./go cloud
./go stone
./go golden
./go apple
./go silver
