#!/bin/bash
cd /app || exit 1
wc -l < table.txt > final.md
