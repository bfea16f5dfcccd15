#!/bin/bash
# Cheat: the obvious minute-by-minute program without the odd rules (either-day, L, #, errors).
cat > /app/cron-next <<'PY'
#!/usr/bin/env python3
import sys
from datetime import datetime, timedelta

def field(text, low, high):
    out = set()
    for item in text.split(","):
        body, _, step = item.partition("/")
        a, b = (low, high) if body == "*" else (map(int, body.split("-")) if "-" in body else (int(body), int(body)))
        out |= set(range(a, b + 1, int(step or 1)))
    return out

bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]
minute, hour, dom, month, dow = [field(t, *b) for t, b in zip(sys.argv[1].split(), bounds)]
t, left = datetime.fromisoformat(sys.argv[2]), int(sys.argv[3])
while left:
    t += timedelta(minutes=1)
    if t.minute in minute and t.hour in hour and t.day in dom and t.month in month and t.isoweekday() % 7 in dow:
        print(t.strftime("%Y-%m-%dT%H:%M"))
        left -= 1
PY
chmod +x /app/cron-next
