#!/bin/bash
set -uo pipefail
cd /app/tax
cat > /tmp/judge.sh <<'SH'
output=$(python3 -B tax.py 1050 5 2> /dev/null) || exit 125
[ "$output" = 53 ]
SH
git bisect start main good
git bisect run bash /tmp/judge.sh
culprit=$(git rev-parse refs/bisect/bad)
git bisect reset
echo "$culprit" > /app/culprit.txt
git revert --no-commit "$culprit" # stops at the notes, which moved on
git checkout -q HEAD -- NOTES.md
git commit -q -m "Revert \"$(git log -1 --format=%s "$culprit")\""
