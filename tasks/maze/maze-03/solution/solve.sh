#!/bin/bash
cd /app || exit 1
./go rocket
./go planet
./go golden
./go paper
./go bright
./go copper
