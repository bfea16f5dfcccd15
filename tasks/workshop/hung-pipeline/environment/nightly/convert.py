"""convert.py FILE: prints "METER WATT-HOURS" per readable line, and complains about the others."""

import sys

with open(sys.argv[1], encoding="utf-8") as file:
    for number, line in enumerate(file, start=1):
        try:
            _, meter, kilowatt_hours = line.strip().split(",")
            print(meter, round(float(kilowatt_hours) * 1000))
        except ValueError:
            print(f"{sys.argv[1]}:{number}: not a reading: {line.strip()!r}", file=sys.stderr)
