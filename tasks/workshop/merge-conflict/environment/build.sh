#!/bin/bash
# Builds /app/stock with fixed names and dates, so that every commit id is the same everywhere.
set -euo pipefail
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
git init -q -b main /app/stock
cd /app/stock
git config user.name "Build" && git config user.email build@example.com
commit() { # WHO SECONDS MESSAGE
  export GIT_AUTHOR_NAME=$1 GIT_AUTHOR_EMAIL=${1,,}@example.com GIT_AUTHOR_DATE="$2 +0000"
  export GIT_COMMITTER_NAME=$1 GIT_COMMITTER_EMAIL=${1,,}@example.com GIT_COMMITTER_DATE="$2 +0000"
  git add -A && git commit -q -m "$3"
}
printf '__pycache__/\n' > .gitignore
cp /tmp/history/base/* . && commit Ola 1704100000 "Keep a stock"
git checkout -q -b units
cp /tmp/history/units/* . && commit Pia 1704200000 "Count in units"
git checkout -q main
cp /tmp/history/main/* . && commit Ola 1704300000 "Trim names, refuse negative quantities, remove"
