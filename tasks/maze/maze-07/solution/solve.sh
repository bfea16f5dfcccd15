#!/bin/bash
cd /app || exit 1
./go golden
./go happy
./go garden
./go cloud
./go purple
./go seven
