#!/bin/bash
cd /app || exit 1
./go orange
./go garden
./go lazy
./go planet
./go summer
./go happy
