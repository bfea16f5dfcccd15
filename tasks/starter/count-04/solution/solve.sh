#!/bin/bash
cd /app || exit 1
wc -l < score.json > names.log
