#!/bin/bash
set -euo pipefail
cd /app
{ zcat logs/access.log.2.gz; cat logs/access.log.1 logs/access.log; } > /tmp/all.log
python3 - <<'PY'
import json
import re
from collections import Counter
from datetime import datetime

LINE = re.compile(r'^(\S+) - - \[([^\]]+)\] "(\S+) (\S+) [^"]+" (\d{3}) .* rt=(\d+)$')
clients, paths, hours = Counter(), Counter(), Counter()
slowest = 0
for line in open("/tmp/all.log"):
    match = LINE.match(line.rstrip("\n"))
    if not match:
        continue
    client, stamp, _, target, status, ms = match.groups()
    clients[client] += 1
    if status.startswith("5"):
        paths[target.split("?")[0]] += 1
        hours[datetime.strptime(stamp, "%d/%b/%Y:%H:%M:%S %z").strftime("%Y-%m-%dT%H")] += 1
    else:
        slowest = max(slowest, int(ms))
report = {
    "requests": sum(clients.values()),
    "server_errors": sum(paths.values()),
    "errors_by_path": dict(paths),
    "top_clients": [list(p) for p in sorted(clients.items(), key=lambda p: (-p[1], p[0]))[:3]],
    "worst_hour": min(hours, key=lambda h: (-hours[h], h)),
    "slowest_ms": slowest,
}
json.dump(report, open("/app/report.json", "w"), indent=2)
PY
