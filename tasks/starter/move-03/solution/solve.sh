#!/bin/bash
cd /app || exit 1
mv delta.py beta.csv
