#!/bin/bash
cd /app || exit 1
echo river cloud > main.csv
