#!/bin/bash
cd /app || exit 1
mkdir list
echo forest > list/index.py
