#!/bin/bash
cd /app || exit 1
./go winter
./go purple
./go window
./go happy
./go golden
./go stone
