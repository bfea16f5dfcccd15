#!/bin/bash
cd /app || exit 1
./go tiger
./go purple
./go castle
./go winter
./go golden
./go river
