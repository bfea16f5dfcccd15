#!/bin/bash
cd /app || exit 1
./go window
./go green
./go garden
./go lazy
./go golden
./go stone
