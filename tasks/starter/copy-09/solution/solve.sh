#!/bin/bash
cd /app || exit 1
cp data.md index.json
