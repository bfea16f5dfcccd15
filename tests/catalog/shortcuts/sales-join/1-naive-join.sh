#!/bin/bash
# Cheat: a straight join with floats that skips whatever does not parse and forgets refunds.
python3 - <<'PY'
import csv, json
from collections import defaultdict
names = {r["id"]: r for r in csv.DictReader(open("/app/data/customers.csv", encoding="utf-8-sig"), delimiter=";")}
count, total = defaultdict(int), defaultdict(float)
for line in open("/app/data/orders.jsonl"):
    try:
        o = json.loads(line)
        amount = float(o["amount"])
    except ValueError:
        continue
    if "2023" in o["date"]:
        key = "C" + str(o["customer"]).lstrip("Cc-0")
        count[key] += 1
        total[key] += amount * (0.8 if o["currency"] == "USD" else 1)
with open("/app/revenue.csv", "w") as f:
    f.write("id,name,country,orders,revenue_eur\n")
    for k in sorted(total, key=lambda k: -total[k]):
        if k in names:
            f.write(f"{k},{names[k]['name'].strip()},{names[k]['country'].strip().upper()},{count[k]},{total[k]:.2f}\n")
PY
