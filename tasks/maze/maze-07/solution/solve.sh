#!/bin/bash
cd /app || exit 1
./go quick
./go river
./go cloud
./go castle
./go tiger
./go golden
