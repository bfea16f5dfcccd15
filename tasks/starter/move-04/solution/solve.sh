#!/bin/bash
cd /app || exit 1
mv items.json log.md
