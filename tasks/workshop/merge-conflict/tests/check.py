"""Checks the merge commit, the settings, and how the merged program behaves."""

import json
import subprocess
import sys

REPOSITORY = "/app/stock"
MAIN = "90594a434f3ecf840cd3b53825503427d8420a85"
UNITS = "9a5e9dcc07b96a6ae58f249a06140e0b60d52770"
CONFIG = {
    "currency": "EUR",
    "low_stock": 12,
    "locale": "de_DE",
    "units": ["piece", "dozen", "kg", "metre"],
    "report": {"format": "html", "columns": ["name", "total", "unit"]},
}
BEHAVIOUR = r"""
import sys
sys.path.insert(0, "/app/stock")
from stock import Stock

def raises(kind, call):
    try:
        call()
    except kind:
        return True
    return False

s = Stock()
s.add(" Nail", 3)
s.add("nail ", 1, "dozen")
s.add("NAIL", 2.5, "kg")
print(s.total("nail"), s.total("Nail ", "piece"), s.total("nail", "dozen"), s.total("nail", "kg"),
      s.total("nail", "metre"), s.total("screw"))
print(raises(KeyError, lambda: s.add("nail", 1, "ton")), raises(KeyError, lambda: s.total("nail", "ton")),
      raises(KeyError, lambda: s.remove("nail", 1, "ton")), raises(KeyError, lambda: s.add("nail", -1, "ton")),
      raises(KeyError, lambda: s.remove("nail", -1, "ton")))
print(raises(ValueError, lambda: s.add("nail", -1)), raises(ValueError, lambda: s.remove("nail", -1)),
      raises(ValueError, lambda: s.remove("nail", 16)), raises(ValueError, lambda: s.remove("nail", 3, "kg")),
      raises(ValueError, lambda: s.remove("screw", 1)), raises(ValueError, lambda: s.remove("nail", 2, "dozen")))
print(s.total("nail"), s.total("nail", "kg"))
s.remove(" NAIL ", 1, "dozen")
s.remove("nail", 2)
print(s.total("nail"), s.total("nail", "kg"), s.names())
s.add("Bolt", 0)
s.add("bolt", 4, "metre")
print(s.names(), s.total("bolt", "metre"))
"""
OUTPUT = """15 15 1.25 2.5 0 0
True True True True True
True True True True True True
15 2.5
1 2.5 ['nail']
['bolt', 'nail'] 4
"""


def git(*arguments):
    command = ["git", "-c", "safe.directory=*", "-C", REPOSITORY, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def expect(actual, wanted, what):
    if actual != wanted:
        sys.exit(f"{what}: {actual!r}, expected {wanted!r}")


expect(git("symbolic-ref", "HEAD"), "refs/heads/main", "checked out")
expect(git("rev-list", "--parents", "-1", "main").split()[1:], [MAIN, UNITS], "parents of main")
expect(git("rev-parse", "units"), UNITS, "tip of units")
expect(git("status", "--porcelain"), "", "working tree")
for name in git("ls-files").splitlines():
    lines = git("show", f"main:{name}").splitlines()
    expect([x for x in lines if x.startswith(("<<<<<<<", ">>>>>>>"))], [], f"markers in {name}")
expect(json.loads(git("show", "main:config.json")), CONFIG, "config.json")
run = subprocess.run([sys.executable, "-I", "-B", "-c", BEHAVIOUR], capture_output=True, text=True, timeout=10)
expect(run.stdout, OUTPUT, f"behaviour {run.stderr[-200:]}")
suite = subprocess.run([sys.executable, "-B", "-m", "unittest"], cwd=REPOSITORY, capture_output=True, timeout=10)
expect(suite.returncode, 0, "the project's tests")
