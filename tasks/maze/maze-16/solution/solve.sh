#!/bin/bash
cd /app || exit 1
./go copper
./go garden
./go paper
./go golden
./go window
./go castle
