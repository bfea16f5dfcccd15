"""Fills /app/backups with a few months of backups to try a rotation on."""

import io
import tarfile
from datetime import date, timedelta
from pathlib import Path

directory = Path("/app/backups")
directory.mkdir(parents=True)
for age in range(0, 130, 2):
    day = date(2024, 5, 20) - timedelta(days=age)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    body = data.getvalue()
    (directory / f"web-{day}.tar.gz").write_bytes(body if age % 14 else body[:20])
(directory / "web-latest.tar.gz").symlink_to("web-2024-05-18.tar.gz")
(directory / "README").write_text("not a backup\n")
