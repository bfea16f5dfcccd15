#!/bin/bash
cd /app || exit 1
mkdir tests
echo tiger > tests/record.json
