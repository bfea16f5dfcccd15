#!/bin/bash
cd /app || exit 1
wc -l < todo.py > list.md
