#!/bin/bash
cd /app || exit 1
./go cloud
./go happy
./go rocket
./go lemon
./go purple
./go river
