#!/bin/bash
cd /app || exit 1
cp record.md backup.csv
