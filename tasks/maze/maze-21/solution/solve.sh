#!/bin/bash
cd /app || exit 1
./go winter
./go desert
./go golden
./go forest
./go green
./go apple
