#!/bin/bash
# The verdict starts at 0, so that a crash of the checks counts as failure.
mkdir -p /logs/verifier
echo 0 > /logs/verifier/reward.txt
if env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
  LC_ALL=C.UTF-8 TZ=UTC timeout 50 python3 -I /tests/check.py; then
  echo 1 > /logs/verifier/reward.txt
fi
