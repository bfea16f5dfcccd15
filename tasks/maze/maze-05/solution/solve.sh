#!/bin/bash
cd /app || exit 1
./go window
./go stone
./go river
./go paper
./go golden
./go ocean
