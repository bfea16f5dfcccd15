#!/bin/bash
cd /app || exit 1
./go silver
./go golden
./go lazy
./go stone
./go paper
./go quick
