#!/bin/bash
cd /app || exit 1
./go purple
./go silver
./go paper
./go ocean
./go lazy
./go bright
