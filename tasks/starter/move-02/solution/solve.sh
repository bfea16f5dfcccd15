#!/bin/bash
cd /app || exit 1
mv items.log list.md
