#!/bin/bash
set -euo pipefail
install -m 755 /solution/order /app/order
/app/order < /app/example.txt | diff - /app/example.out
