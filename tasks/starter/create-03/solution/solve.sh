#!/bin/bash
cd /app || exit 1
echo garden purple > table.csv
