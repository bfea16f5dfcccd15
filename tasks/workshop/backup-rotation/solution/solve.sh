#!/bin/bash
set -euo pipefail
install -m 755 /solution/rotate /app/rotate
