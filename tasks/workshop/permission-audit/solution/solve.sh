#!/bin/bash
set -euo pipefail
python3 - <<'PY'
import os
import re
import stat
from pathlib import Path

rules = []
for line in open("/app/POLICY.txt"):
    if line.strip() and not line.startswith("#"):
        mode, kind, pattern = line.split(None, 2)
        regex = re.compile(".*".join(map(re.escape, pattern.strip().split("*"))), re.S)
        rules.append((int(mode, 8), kind, regex))

site = Path("/app/site")
changes = []
for path in [site, *site.rglob("*")]:
    if path.is_symlink():
        continue
    kind = "dir" if path.is_dir() else "file"
    name = str(path.relative_to(site))
    wanted = [mode for mode, rule_kind, regex in rules if rule_kind == kind and regex.fullmatch(name)][-1]
    old = stat.S_IMODE(path.lstat().st_mode)
    if old != wanted:
        changes.append((os.fsencode(name), f"{name},{old:04o},{wanted:04o}\n"))
        path.chmod(wanted)
Path("/app/changes.csv").write_text("".join(line for _, line in sorted(changes)))
PY
