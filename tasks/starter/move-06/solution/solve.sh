#!/bin/bash
cd /app || exit 1
mv names.txt table.txt
