#!/bin/bash
cd /app || exit 1
./go golden
./go purple
./go garden
./go copper
./go forest
./go silent
