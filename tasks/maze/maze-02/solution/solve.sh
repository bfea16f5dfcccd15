#!/bin/bash
cd /app || exit 1
./go copper
./go golden
./go castle
./go forest
./go paper
./go bright
