"""report.py PIPE SKIPPED: adds up the readings from PIPE; SKIPPED holds a number when they end."""

import sys
from collections import Counter
from pathlib import Path

sums = Counter()
with open(sys.argv[1]) as readings:
    for line in readings:
        meter, watt_hours = line.split()
        sums[meter] += int(watt_hours)
for meter in sorted(sums):
    print(f"{meter} {sums[meter]}")
print(f"total {sum(sums.values())}")
print(f"skipped {Path(sys.argv[2]).read_text()}")
