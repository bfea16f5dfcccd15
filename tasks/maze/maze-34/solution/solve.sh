#!/bin/bash
cd /app || exit 1
./go paper
./go rocket
./go river
./go golden
./go forest
./go happy
