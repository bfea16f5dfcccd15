#!/bin/bash
# Builds /app/api with fixed names and dates, so that every commit id is the same everywhere.
set -euo pipefail
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
TOKEN=tk_live_9f3KqZ71xWvB
git init -q -b main /app/api
cd /app/api
git config user.name "Build" && git config user.email build@example.com
git config gc.auto 0
clock=1709280000
stamp() { # AUTHOR
  clock=$((clock + 5003))
  export GIT_AUTHOR_NAME=$1 GIT_AUTHOR_EMAIL=${1,,}@example.com
  export GIT_COMMITTER_NAME=Robin GIT_COMMITTER_EMAIL=robin@example.com
  export GIT_AUTHOR_DATE="$clock +0100" GIT_COMMITTER_DATE="$((clock + 60)) +0100"
}
commit() { stamp "$1" && git add -A && git commit -q -m "$2"; }
printf 'import os\n\nURL = "https://api.example.com/v1"\n' > client.py
commit Ada "Start the client"
printf 'import os\n\nURL = "https://api.example.com/v1"\nTOKEN = "%s"\n' $TOKEN > client.py
commit Ada "Authenticate"
stamp Ada && git tag v0.1
printf '# Client\n\nRun `python3 client.py`.\n' > README.md
commit Max "Add a read-me"
mkdir -p ci && printf 'steps:\n  - run: curl -H "Authorization: Bearer %s" https://api.example.com\n' $TOKEN > ci/smoke.yml
printf '\000\001binary %s\377\376\n' $TOKEN > ci/cache.bin
commit Max "Smoke test in CI"
git checkout -q -b retry
printf 'def retry(call, times=3):\n    for _ in range(times - 1):\n        try:\n            return call()\n        except OSError:\n            pass\n    return call()\n' > retry.py
commit Ada "Retry on network errors"
printf '# curl -H "Authorization: Bearer %s"\n' $TOKEN >> retry.py
commit Ada "Note how to reproduce, with $TOKEN as the key"
git checkout -q main
sed -i "s/\"$TOKEN\"/os.environ[\"API_TOKEN\"]/" client.py
commit Max "Read the token from the environment"
stamp Max && git merge -q --no-ff -m "Merge branch 'retry'" retry
stamp Max && git tag -a v0.2 -m "Version 0.2

First version with retries; tk_live_ tokens are read from the environment."
sed -i '/Authorization/d' retry.py
printf 'TOKEN_PREFIX = "tk_live_"\n' >> client.py
commit Ada "Check the token's form"
git checkout -q -b legacy v0.1
printf 'TIMEOUT = 30\n' >> client.py
commit Max "Longer time-out for old servers"
git checkout -q main
printf 'debug = "%s"\n' $TOKEN > debug.ini
stamp Ada && git add debug.ini && git stash -q
rm -f .git/ORIG_HEAD
