"""Runs the program on expressions whose times were worked out by hand or by a brute-force scan."""

import subprocess
import sys
from datetime import datetime, timedelta

FORM = "%Y-%m-%dT%H:%M"


def run(expression, start, count):
    return subprocess.run(["/app/cron-next", expression, start, str(count)],
                          capture_output=True, text=True, timeout=10)


def expect(expression, start, count, times, status=0):
    done = run(expression, start, count)
    if done.stdout.split("\n") != [*times, ""] or done.returncode != status:
        sys.exit(f"{expression!r} after {start}: exit {done.returncode}, "
                 f"{done.stdout.split()[:5]}, expected {times[:5]}")


def scan(matches, start, count, step=timedelta(minutes=1)):
    """The first `count` minutes after `start` for which `matches` holds."""
    moment, found = datetime.strptime(start, FORM) + step, []
    while len(found) < count:
        if matches(moment):
            found.append(moment.strftime(FORM))
        moment += step
    return found


def weekday(t):
    return t.isoweekday() % 7


def last(t):
    return (t + timedelta(days=1)).day == 1


def days(matches, start, count):
    """Like scan, for expressions that fire at midnight."""
    return scan(matches, start, count, timedelta(days=1))


expect("* * * * *", "2023-12-31T23:58", 3, ["2023-12-31T23:59", "2024-01-01T00:00", "2024-01-01T00:01"])
expect("0 0 1 1 *", "2024-01-01T00:00", 1, ["2025-01-01T00:00"])
expect("*/20 8-10/2 * * *", "2024-03-05T08:41", 4,
       ["2024-03-05T10:00", "2024-03-05T10:20", "2024-03-05T10:40", "2024-03-06T08:00"])
expect("50/4,3 23 * * *", "2024-02-28T23:50", 4,
       ["2024-02-28T23:54", "2024-02-28T23:58", "2024-02-29T23:03", "2024-02-29T23:50"])
expect("30 9 29 2 *", "2023-01-01T00:00", 2, ["2024-02-29T09:30", "2028-02-29T09:30"])
S = "2023-11-27T00:00"
expect("0 0 13 * 5", S, 40, days(lambda t: t.day == 13 or weekday(t) == 5, S, 40))
expect("0 0 */2 * 1-5", S, 40, days(lambda t: t.day % 2 == 1 and 1 <= weekday(t) <= 5, S, 40))
expect("0 0 13 * */2", S, 9, days(lambda t: t.day == 13 and weekday(t) % 2 == 0, S, 9))
expect("0 0 * * FRI-Sun", S, 9, days(lambda t: weekday(t) in (5, 6, 0), S, 9))
expect("0 0 * * 5-7", S, 9, days(lambda t: weekday(t) in (5, 6, 0), S, 9))
expect("0 0 * * 7", S, 5, days(lambda t: weekday(t) == 0, S, 5))
expect("0 0 * * 2/2", S, 9, days(lambda t: weekday(t) in (2, 4, 6), S, 9))
expect("0 0 * Feb,apr-JUN/2 *", S, 99, days(lambda t: t.month in (2, 4, 6), S, 99))
expect("0 0 L * *", S, 30, days(last, S, 30))
expect("0 0 L-2,1 * *", S, 30, days(lambda t: t.day == 1 or (last(t + timedelta(days=2)) and not last(t + timedelta(days=1)) and t.month == (t + timedelta(days=2)).month), S, 30))
expect("0 0 L-30 * *", "2023-01-31T00:00", 3, ["2023-03-01T00:00", "2023-05-01T00:00", "2023-07-01T00:00"])
expect("0 0 * * tue#2", S, 20, days(lambda t: weekday(t) == 2 and 8 <= t.day <= 14, S, 20))
expect("0 0 * * 7#5,wed", S, 50, days(lambda t: weekday(t) == 3 or (weekday(t) == 0 and t.day > 28), S, 50))
expect("0 0 L * mon#1", S, 30, days(lambda t: last(t) or (weekday(t) == 1 and t.day <= 7), S, 30))
expect("0 0 29 2 1#5", "2023-01-01T00:00", 4,
       ["2024-02-29T00:00", "2028-02-29T00:00", "2032-02-29T00:00", "2036-02-29T00:00"])
expect("0 0 29 2 *", "2096-01-01T00:00", 2, ["2096-02-29T00:00", "2104-02-29T00:00"])
for name, field in (("hourly", "0 * * * *"), ("daily", "0 0 * * *"), ("weekly", "0 0 * * sun"),
                    ("monthly", "0 0 1 * *"), ("yearly", "0 0 1 1 *")):
    expect(f"@{name}", S, 3, run(field, S, 3).stdout.split())
expect("@weekly", S, 2, ["2023-12-03T00:00", "2023-12-10T00:00"])
expect("0 0 30 2 *", S, 3, [], status=1)
expect("0 0 31 4,6 *", S, 1, [], status=1)
many = "*/7 3 1-10 * *"
expect(many, S, 900, [f"{day[:10]}T03:{minute:02d}" for day in days(lambda t: t.day <= 10, S, 100)
                      for minute in range(0, 60, 7)])
leaps = [f"{year}-02-29T00:00" for year in range(2024, 2124, 4) if year != 2100]
expect("0 0 29 2 *", S, 50, [t for t in leaps if t <= "2123-11-27T00:00"], status=1)
for bad in ("", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *",
            "* * * 0 *", "* * * * 8", "*/0 * * * *", "5-1 * * * *", "a * * * *", "1,,2 * * * *", "* * * foo *",
            "* * * * mon#6", "* * L-31 * *", "* L * * *", "-1 * * * *", "1- * * * *", "*/x * * * *", "@often",
            "* * * * fri-mon", "1.5 * * * *", "mon * * * *"):
    done = run(bad, S, 1)
    if done.returncode != 2 or done.stdout or not done.stderr.startswith("error:"):
        sys.exit(f"{bad!r} must be refused: exit {done.returncode}, {done.stdout!r}, {done.stderr[-200:]!r}")
