#!/bin/bash
cd /app || exit 1
./go rocket
./go silver
./go bright
./go tiger
./go golden
./go apple
