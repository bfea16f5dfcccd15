#!/bin/bash
cd /app || exit 1
./go purple
./go castle
./go paper
./go golden
./go quick
./go island
