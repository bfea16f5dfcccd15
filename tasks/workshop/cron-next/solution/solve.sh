#!/bin/bash
set -euo pipefail
install -m 755 /solution/cron-next /app/cron-next
