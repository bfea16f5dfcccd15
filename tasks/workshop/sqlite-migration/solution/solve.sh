#!/bin/bash
set -euo pipefail
cp /solution/migrate.py /app/migrate.py
python3 /app/migrate.py /app/library.db
