#!/bin/bash
cd /app || exit 1
./go desert
./go apple
./go window
./go stone
./go lazy
./go happy
