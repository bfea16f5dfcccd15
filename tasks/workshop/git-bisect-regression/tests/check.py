"""Checks the culprit, the one new commit, its tree and the program's answers."""

import subprocess
import sys
from pathlib import Path

CULPRIT = "05929a6343914f77fe6e48a13e70f71be29009b3"
OLD_MAIN = "0328502dd86f528a60bcd319c233596bfa1fcc26"
# Blob id of rounding.py with only the culprit's change undone.
ROUNDING = "450aa9aee50bd737e3d956924b3f6997d0577c68"
REPOSITORY = "/app/tax"


def git(*arguments):
    command = ["git", "-c", "safe.directory=*", "-C", REPOSITORY, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def expect(actual, wanted, what):
    if actual != wanted:
        sys.exit(f"{what}: {actual!r}, expected {wanted!r}")


expect(Path("/app/culprit.txt").read_text().split(), [CULPRIT], "culprit")
expect(git("symbolic-ref", "HEAD"), "refs/heads/main", "checked out")
expect(git("rev-list", "--parents", "-1", "main").split()[1:], [OLD_MAIN], "parent of main")
expect(git("log", "-1", "--format=%s", "main").startswith("Revert"), True, "subject")
expect(git("diff", "--name-only", OLD_MAIN, "main"), "rounding.py", "changed files")
expect(git("rev-parse", "main:rounding.py"), ROUNDING, "rounding.py")
expect(git("status", "--porcelain", "--untracked-files=no"), "", "working tree")
for amount, rate, tax in ((1050, "5", "53"), (1050, "low", "53"), (99, "19%", "19"), (250, "1", "3")):
    command = ["python3", "-B", "tax.py", str(amount), rate]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=10)
    expect(run.stdout.strip(), tax, f"tax of {amount} at {rate}")
