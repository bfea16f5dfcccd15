#!/bin/bash
cd /app || exit 1
./go tiger
./go window
./go happy
./go golden
./go purple
./go stone
