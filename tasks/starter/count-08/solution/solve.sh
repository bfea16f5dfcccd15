#!/bin/bash
cd /app || exit 1
wc -l < story.csv > final.md
