"""Parts of a real Prime-RL, from a Git repository that TBTUI_PRIME_RL_REPOSITORY names, with a
virtual environment of their own, which takes a package index and a minute."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

REPOSITORY = os.environ.get("TBTUI_PRIME_RL_REPOSITORY")
CLASSES = "packages/prime-rl-configs"


def check_out(
    directory: Path,
    commit: str = "HEAD",
    *,
    paths: Sequence[str] = (),
    packages: Sequence[str] = (),
    importable: Sequence[Path] = (),
) -> Path:
    """Write the configuration classes, installed, and `paths` of the repository into `directory`.

    Args:
        packages: what is installed beside the classes.
        importable: directories from which its Python imports, before tbtui's plugin and what that
            needs, which come after the environment's own.
    """
    if REPOSITORY is None:
        pytest.skip("asked for by TBTUI_PRIME_RL_REPOSITORY")
    archive = directory / "prime-rl.tar"
    git = ["git", "-C", REPOSITORY, "archive", "-o", str(archive), commit, CLASSES, *paths]
    subprocess.run(git, check=True)
    subprocess.run(["tar", "-xf", archive, "-C", directory], check=True)
    environment = directory / ".venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    uv = shutil.which("uv")
    install = [uv, "pip"] if uv else [environment / "bin/python", "-m", "pip"]
    subprocess.run(
        [*install, "install", "-q", directory / CLASSES, *packages],
        env=os.environ | {"VIRTUAL_ENV": str(environment)},
        check=True,
    )
    [site] = (environment / "lib").glob("python3*/site-packages")
    found = (*importable, Path(__file__).parents[3], sysconfig.get_path("purelib"))
    (site / "tbtui.pth").write_text("".join(f"{path}\n" for path in found))
    return directory
