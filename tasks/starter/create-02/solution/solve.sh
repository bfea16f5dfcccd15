#!/bin/bash
cd /app || exit 1
echo garden tiger > hello.csv
