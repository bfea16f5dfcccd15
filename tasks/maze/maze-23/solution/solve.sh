#!/bin/bash
cd /app || exit 1
./go stone
./go silent
./go desert
./go island
./go purple
./go lazy
