#!/bin/bash
cd /app || exit 1
./go stone
./go river
./go desert
./go happy
./go golden
./go summer
