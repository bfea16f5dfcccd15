#!/bin/bash
cd /app || exit 1
./go seven
./go forest
./go river
./go golden
./go happy
./go lazy
