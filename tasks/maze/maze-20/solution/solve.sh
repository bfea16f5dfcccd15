#!/bin/bash
cd /app || exit 1
./go river
./go garden
./go golden
./go copper
./go purple
./go apple
