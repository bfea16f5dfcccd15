"""Checks the one new commit, its tree and the state of the repository."""

import subprocess
import sys
from pathlib import Path

OLD_MAIN = "93b8c1e48a2588bfec22e20becbaa77c2023d2fd"
MESSAGE = """Add token bucket rate limiter

The bucket never holds more than the burst, however long the shop was idle.
Refs: SHOP-118
"""
SETTINGS = 'host = "0.0.0.0"\nport = 8080\nworkers = 4\nrate_per_second = 5\nburst = 10\n'
# Blob ids of the files as Ines's commit or the present main had them.
BLOBS = {
    "cart.py": "8c26edb99300d5655efbb145c5a8ca400baa20cb",
    "limiter.py": "fc108d09c0a81e57e450f5a4d0b122e08784db94",
    "server.py": "2608d4cef7a530d719971d0a9e0fc89e3dde2f22",
}


def git(*arguments):
    command = ["git", "-c", "safe.directory=*", "-C", "/app/shop", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def expect(actual, wanted, what):
    if actual != wanted:
        sys.exit(f"{what}: {actual!r}, expected {wanted!r}")


expect(git("symbolic-ref", "HEAD").strip(), "refs/heads/main", "checked out")
expect(git("rev-list", "--parents", "-1", "main").split()[1:], [OLD_MAIN], "parent of main")
expect(git("log", "-1", "--format=%an <%ae> %ad", "--date=raw", "main").strip(),
       "Ines <ines@example.com> 1717431605 +0200", "author")
expect(git("log", "-1", "--format=%B", "main").strip(), MESSAGE.strip(), "message")
tree = {line.split("\t")[1]: line.split()[2] for line in git("ls-tree", "-r", "main").splitlines()}
expect(sorted(tree), sorted([*BLOBS, "settings.toml"]), "files")
for name, blob in BLOBS.items():
    expect(tree[name], blob, name)
expect(git("show", "main:settings.toml"), SETTINGS, "settings.toml")
expect(git("status", "--porcelain"), "", "working tree")
for state in ("CHERRY_PICK_HEAD", "MERGE_HEAD", "rebase-merge", "rebase-apply"):
    expect(Path("/app/shop/.git", state).exists(), False, state)
