#!/bin/bash
cd /app || exit 1
wc -l < beta.txt > input.md
