#!/bin/bash
cd /app || exit 1
mv backup.txt index.json
