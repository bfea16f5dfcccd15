#!/bin/bash
cd /app || exit 1
./go golden
./go castle
./go bright
./go copper
./go silent
./go paper
