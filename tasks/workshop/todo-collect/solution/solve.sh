#!/bin/bash
set -euo pipefail
cd /app/src
find . -name vendor -type d -prune -o -type f \( -name '*.py' -o -name '*.js' -o -name '*.sh' \) -print |
  sed 's#^\./##' | xargs grep -HnE 'TODO\([a-z]+\):' |
  sed -E 's/^([^:]+):([0-9]+):.*TODO\(([a-z]+)\):[[:space:]]*(.*[^[:space:]])[[:space:]]*$/\3,\1,\2,\4/' |
  LC_ALL=C sort -t, -k1,1 -k2,2 -k3,3n > /app/todo.csv
