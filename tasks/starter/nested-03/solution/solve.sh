#!/bin/bash
cd /app || exit 1
mkdir readme
echo apple > readme/out.csv
