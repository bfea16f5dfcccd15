#!/bin/bash
set -euo pipefail
install -m 755 /solution/decode /app/decode
