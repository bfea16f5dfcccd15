#!/bin/bash
cd /app || exit 1
./go window
./go silent
./go silver
./go orange
./go purple
./go island
