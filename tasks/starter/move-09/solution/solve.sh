#!/bin/bash
cd /app || exit 1
mv score.log backup.csv
