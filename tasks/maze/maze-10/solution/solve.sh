#!/bin/bash
cd /app || exit 1
./go garden
./go window
./go bright
./go tiger
./go purple
./go quick
