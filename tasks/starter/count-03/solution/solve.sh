#!/bin/bash
cd /app || exit 1
wc -l < data.json > names.txt
