"""Compares every mode and every name under /app/site, and the report, with the right ones."""

import os
import stat
import sys
from pathlib import Path

MODES = {
    ".": ("0777", "0755"),
    ".cache": ("0700", "0755"),
    ".cache/-rf": ("0606", "0644"),
    ".htaccess": ("0644", "0644"),
    "about.html": ("0666", "0644"),
    "bin": ("0775", "0755"),
    "bin/README": ("0755", "0644"),
    "bin/deploy": ("0755", "0755"),
    "bin/helper": ("6755", "0755"),
    "bin/rotate": ("0644", "0755"),
    "cgi": ("0755", "0755"),
    "cgi/admin.cgi": ("4755", "0755"),
    "cgi/form.cgi": ("0755", "0755"),
    "cgi/form.conf": ("0644", "0640"),
    "cgi/search.cgi": ("0644", "0755"),
    "index.html": ("0644", "0644"),
    "news": ("0777", "0755"),
    "news/first post.html": ("0644", "0644"),
    "news/second, longer post.html": ("0777", "0644"),
    "private": ("0755", "0750"),
    "private/keys": ("0755", "0700"),
    "private/keys/old.pem": ("0600", "0600"),
    "private/keys/site.pem": ("0644", "0600"),
    "private/keys/tls.conf": ("0640", "0600"),
    "private/plan.txt": ("0640", "0640"),
    "private/run.cgi": ("0644", "0640"),
    "private/staff.txt": ("0644", "0640"),
    "site.conf": ("0640", "0640"),
    "style.css": ("0755", "0644"),
    "upload": ("0755", "2775"),
    "upload/movie.mp4": ("0664", "0664"),
    "upload/photo.jpg": ("0644", "0664"),
    "upload/tmp": ("0777", "1777"),
    "upload/tmp/x.cgi": ("0777", "0664"),
}
LINKS = {"home.html": "index.html", "outdir": "/app/outside",
         "private/link.conf": "../../outside/secret.conf"}

site = Path("/app/site")
seen, links = {}, {}
for path in [site, *site.rglob("*")]:
    name = str(path.relative_to(site))
    if path.is_symlink():
        links[name] = os.readlink(path)
    else:
        seen[name] = f"{stat.S_IMODE(path.lstat().st_mode):04o}"
        if path.is_file() and path.read_text() != f"content of {name}\n":
            sys.exit(f"{name} was edited")
if links != LINKS:
    sys.exit(f"links were changed: {links}")
if seen != {name: new for name, (_, new) in MODES.items()}:
    wrong = {n: m for n, m in seen.items() if MODES.get(n, ("", ""))[1] != m}
    sys.exit(f"wrong modes or names: {wrong}, missing: {sorted(set(MODES) - set(seen))}")
outside = Path("/app/outside")
if [stat.S_IMODE(p.stat().st_mode) for p in (outside, outside / "secret.conf")] != [0o711, 0o604]:
    sys.exit("a file outside /app/site was changed")
lines = [f"{name},{old},{new}" for name, (old, new) in sorted(MODES.items()) if old != new]
if Path("/app/changes.csv").read_text().splitlines() != lines:
    sys.exit("changes.csv is wrong")
