#!/bin/bash
# Cheat: right culprit (by its telling subject), but rounding.py is taken from the good tag, which
# loses the function added later.
cd /app/tax
git log --format=%H --grep "Simplify rounding" > /app/culprit.txt
git checkout -q good -- rounding.py
git commit -qm "Revert to good rounding"
