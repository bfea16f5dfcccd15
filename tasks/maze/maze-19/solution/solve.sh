#!/bin/bash
cd /app || exit 1
./go golden
./go ocean
./go river
./go lazy
./go desert
./go apple
