#!/bin/bash
cd /app || exit 1
mv out.txt delta.md
