#!/bin/bash
set -euo pipefail
python3 - <<'PY'
import csv
import json
from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal

customers = {}
with open("/app/data/customers.csv", encoding="utf-8-sig", newline="") as file:
    for row in csv.DictReader(file, delimiter=";"):
        country = row["country"].strip().upper() or "ZZ"
        customers[row["id"].strip()] = (row["name"].strip(), country)

percent = defaultdict(Decimal)
with open("/app/data/refunds.csv", newline="") as file:
    for order, value in csv.reader(file):
        percent[order] += Decimal(value)

seen, orders, revenue = set(), defaultdict(int), defaultdict(Decimal)
for line in open("/app/data/orders.jsonl", encoding="utf-8"):
    try:
        record = json.loads(line, parse_float=Decimal)
    except ValueError:
        continue
    if record["order"] in seen:
        continue
    seen.add(record["order"])
    day = record["date"]
    year = day[:4] if day[4] == "-" else day[-4:]
    if year != "2023":
        continue
    amount = record["amount"]
    if isinstance(amount, str):
        amount = amount.replace(".", "").replace(",", ".")
    amount = Decimal(amount) * (Decimal("0.80") if record["currency"] == "USD" else 1)
    amount *= 1 - min(percent[record["order"]], Decimal(100)) / 100
    key = "C" + str(int(str(record["customer"]).upper().removeprefix("C-")))
    key = key if key in customers else "UNKNOWN"
    orders[key] += 1
    revenue[key] += amount.quantize(Decimal("0.01"), ROUND_HALF_UP)

customers["UNKNOWN"] = ("UNKNOWN", "ZZ")
with open("/app/revenue.csv", "w", encoding="utf-8", newline="") as file:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["id", "name", "country", "orders", "revenue_eur"])
    for key in sorted(orders, key=lambda key: (-revenue[key], key)):
        writer.writerow([key, *customers[key], orders[key], f"{revenue[key]:.2f}"])
PY
