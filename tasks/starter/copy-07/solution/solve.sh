#!/bin/bash
cd /app || exit 1
cp record.csv list.json
