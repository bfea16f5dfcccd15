"""Builds /app/tax: forty commits with fixed names and dates, so that ids are the same everywhere."""

import os
import subprocess
from pathlib import Path

ROOT = Path("/app/tax")
ROOT.mkdir(parents=True)
clock = 1700000000


def git(*arguments):
    stamp = f"{clock} +0000"
    who = ["Noa", "Kim", "Jo"][clock % 3]
    env = {
        "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": who, "GIT_AUTHOR_EMAIL": f"{who.lower()}@example.com",
        "GIT_COMMITTER_NAME": who, "GIT_COMMITTER_EMAIL": f"{who.lower()}@example.com",
        "GIT_AUTHOR_DATE": stamp, "GIT_COMMITTER_DATE": stamp,
    }
    subprocess.run(["git", *arguments], cwd=ROOT, env=env, check=True)


def commit(message, **files):
    global clock
    clock += 4021
    for name, text in files.items():
        (ROOT / name.replace("_py", ".py").replace("_md", ".md")).write_text(text)
    git("add", "-A")
    git("commit", "-q", "-m", message)


MAIN = """import sys

import rounding
import rates


def main(amount, rate):
    print(rounding.half_up(amount * rates.parse(rate), 100))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
"""
RATES = '''def parse(text):
    """A rate in whole per cent."""
    return int(text.rstrip("%"))
'''
ROUNDING = '''def half_up(value, unit):
    """`value / unit`, rounded half up."""
    return (value + unit // 2) // unit
'''

git("init", "-q", "-b", "main")
git("config", "user.name", "Build")
git("config", "user.email", "build@example.com")
commit("Compute a tax", tax_py=MAIN, rates_py=RATES, rounding_py=ROUNDING)
notes = "# Notes\n"
for number in range(1, 9):
    notes += f"- rule {number}: see the handbook, section {number}\n"
    commit(f"Note rule {number}", NOTES_md=notes)
git("tag", "good")
rounding, rates, main = ROUNDING, RATES, MAIN
for number in range(9, 40):
    message, changed = f"Note rule {number}", {}
    notes += f"- rule {number}: see the handbook, section {number}\n"
    if number == 13:
        message, changed = "Name the rounding unit", {"rounding_py": (rounding := rounding.replace("unit // 2", "(unit // 2)"))}
    elif number == 17:
        message, changed = "Tidy up the main module", {"tax_py": main.replace("import rates", "import rate")}
    elif number == 20:
        message, changed = "Tidy up the main module, again", {"tax_py": main}
    elif number == 21:
        rounding = '''def half_up(value, unit):
    """`value / unit`, rounded."""
    return round(value / unit)
'''
        message, changed = "Simplify rounding", {"rounding_py": rounding}
    elif number == 25:
        rounding = '''def down(value, unit):
    """`value / unit`, rounded towards minus infinity."""
    return value // unit


''' + rounding
        message, changed = "Round down for refunds", {"rounding_py": rounding}
    elif number == 28:
        rates = rates.replace('return int(text.rstrip("%"))', 'return {"low": 5, "high": 19}.get(text) or int(text.rstrip("%"))')
        message, changed = "Accept named rates", {"rates_py": rates}
    elif number == 33:
        main = main.replace("rounding.half_up(", "ROUND(").replace("\n\ndef main", "\nROUND = rounding.half_up\n\n\ndef main", 1)
        message, changed = "Choose the rounding in one place", {"tax_py": main}
    commit(message, NOTES_md=notes, **changed)
