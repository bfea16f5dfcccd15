#!/bin/bash
# Builds /app/shop with fixed names and dates, so that every commit id is the same everywhere.
set -euo pipefail
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
git init -q -b main /app/shop
cd /app/shop
git config user.name "Build" && git config user.email build@example.com
git config gc.auto 0
clock=1717400000
commit() { # AUTHOR MESSAGE [git commit options]
  clock=$((clock + 7321))
  local who=$1 message=$2
  shift 2
  GIT_AUTHOR_NAME=$who GIT_AUTHOR_EMAIL=${who,,}@example.com GIT_AUTHOR_DATE="$clock +0200" \
  GIT_COMMITTER_NAME=$who GIT_COMMITTER_EMAIL=${who,,}@example.com \
  GIT_COMMITTER_DATE="$clock +0200" git commit -q "$@" -m "$message"
}
printf 'host = "0.0.0.0"\nport = 8080\n' > settings.toml
printf 'def handle(request):\n    return 200\n' > server.py
git add . && commit Tom "Start the shop server"
printf 'def price(items):\n    return sum(items)\n' > cart.py
git add . && commit Tom "Add the cart"
base=$(git rev-parse HEAD)

# A lost experiment of Tom's.
printf 'class RateLimiter:\n    """Fixed window; does not work yet."""\n' > limiter.py
git add . && commit Tom "WIP rate limiter"
git reset -q --hard "$base"

# Ines's first version, then the amended one.
cat > limiter.py <<'PY'
import time


class TokenBucket:
    def __init__(self, rate, burst):
        self.rate, self.burst = rate, burst
        self.tokens, self.seen = burst, time.monotonic()

    def allow(self):
        now = time.monotonic()
        self.tokens += (now - self.seen) * self.rate
        self.seen = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True
PY
printf 'rate_per_second = 5\nburst = 10\n' >> settings.toml
printf 'from limiter import TokenBucket\n\nBUCKET = TokenBucket(5, 10)\n\n\ndef handle(request):\n    return 200 if BUCKET.allow() else 429\n' > server.py
git add . && commit Ines "Add token bucket rate limiter"
sed -i 's/        self.tokens += (now - self.seen) \* self.rate/        refill = (now - self.seen) * self.rate\n        self.tokens = min(self.burst, self.tokens + refill)/' limiter.py
git add .
commit Ines "Add token bucket rate limiter

The bucket never holds more than the burst, however long the shop was idle.
Refs: SHOP-118" --amend --date="1717431605 +0200"
git reset -q --hard "$base"

printf 'workers = 4\n' >> settings.toml
git add . && commit Lena "Set the number of workers"
printf 'def price(items):\n    return round(sum(items), 2)\n' > cart.py
git add . && commit Lena "Round prices to cents"
rm -f .git/ORIG_HEAD
