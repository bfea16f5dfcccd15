#!/bin/bash
cd /app || exit 1
./go silent
./go winter
./go happy
./go seven
./go apple
./go golden
