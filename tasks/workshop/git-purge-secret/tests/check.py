"""Compares all refs with the ids of a faultless rewrite, and looks for the token everywhere."""

import subprocess
import sys
from pathlib import Path

TOKEN = b"tk_live_9f3KqZ71xWvB"
# A commit id covers contents, authors, dates, messages and parents: there is one right result.
REFS = {
    "refs/heads/legacy": "8911fde209bc8e6e3769e414d079d38b450be01b",
    "refs/heads/main": "9eb0b46a9aaf6aba97b2a1bad6046df69861919e",
    "refs/heads/retry": "8f17f4ba83c1bb0c445097aa57dda02b6b44cf9a",
    "refs/tags/v0.1": "2bfcc6fa268431a09d2553e50d1c3c38046d898f",
    "refs/tags/v0.2": "b8e78f16cb12322a23229a12c82d06f342b860f4",
}
REPOSITORY = Path("/app/api")


def git(*arguments):
    command = ["git", "-c", "safe.directory=*", "-C", str(REPOSITORY), *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout


refs = dict(reversed(line.split()) for line in git("show-ref").decode().splitlines())
refs = {ref: commit for ref, commit in refs.items() if ref != "refs/stash"}
if refs != REFS:
    sys.exit(f"refs differ from the faultless rewrite: {refs}")
if git("symbolic-ref", "HEAD").strip() != b"refs/heads/main":
    sys.exit("main is not checked out")
if status := git("status", "--porcelain", "--ignored"):
    sys.exit(f"the working tree is not clean: {status!r}")
git("fsck", "--full")
if TOKEN in git("cat-file", "--batch-all-objects", "--unordered", "--batch"):
    sys.exit("an object still holds the token")
for path in REPOSITORY.rglob("*"):
    if path.is_file() and TOKEN in path.read_bytes():
        sys.exit(f"{path} still holds the token")
