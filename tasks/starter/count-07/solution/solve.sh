#!/bin/bash
cd /app || exit 1
wc -l < report.txt > config.txt
