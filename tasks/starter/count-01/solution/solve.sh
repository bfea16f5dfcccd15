#!/bin/bash
cd /app || exit 1
wc -l < hello.md > backup.json
