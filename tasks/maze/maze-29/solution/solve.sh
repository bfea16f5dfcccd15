#!/bin/bash
cd /app || exit 1
./go winter
./go silent
./go island
./go golden
./go lemon
./go lazy
