"""The oldest Harbor that pyproject.toml allows, in an environment made for it and thrown away.

Downloads packages, so it is only run when asked for: TBTUI_OTHER_HARBOR=1, another version than
the oldest (TBTUI_OTHER_HARBOR=0.25), or the path of a wheel where the package index lacks it.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
ASKED = os.environ.get("TBTUI_OTHER_HARBOR", "")
SUITE = [
    "tests/catalog/test_harbor_agreement.py",
    "tests/rollout/test_agent_table.py",
    "tests/rollout/test_harbor_seam.py",
    "tests/rollout/test_real_trials.py",
    "tests/rollout/environments/test_preflight.py",
    "tests/rollout/environments/test_lifetime.py",
    "tests/rollout/environments/test_freezing.py",
]

pytestmark = [
    pytest.mark.skipif(not ASKED, reason="downloads packages: set TBTUI_OTHER_HARBOR=1"),
    pytest.mark.timeout(900),
]


def test_the_other_harbor(tmp_path: Path) -> None:
    other = oldest() if ASKED == "1" else ASKED
    python = make_environment(tmp_path, other if other.endswith(".whl") else f"harbor=={other}.*")
    version = run(python, "-c", "import importlib.metadata as m; print(m.version('harbor'))").stdout
    assert version.strip() != importlib.metadata.version("harbor")
    assert version.strip() in Requirement(harbor()).specifier
    result = run(python, "-m", "pytest", "-p", "no:cacheprovider", *SUITE)
    assert result.returncode == 0, result.stdout[-8000:]


def harbor() -> str:
    """What pyproject.toml says of it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return next(each for each in project["dependencies"] if each.startswith("harbor"))


def oldest() -> str:
    bounds = {each.operator: each.version for each in Requirement(harbor()).specifier}
    return bounds[">="]


def make_environment(folder: Path, wanted: str) -> Path:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    python = folder / "other" / "bin" / "python"
    dev = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    # Harbor from 0.25 on wants the certificates of a certain day, which not every index has.
    overrides = folder / "overrides.txt"
    overrides.write_text("certifi\n")
    for arguments in (
        ["venv", "--python", sys.executable, str(python.parents[1])],
        [
            *("pip", "install", "--python", str(python), "--override", str(overrides)),
            *("--editable", str(ROOT), wanted),
            *(package for package in dev if package.startswith(("pytest", "hypothesis"))),
        ],
    ):
        made = subprocess.run([uv, *arguments], capture_output=True, text=True, check=False)
        if "No solution found" in made.stderr:
            pytest.skip(f"this package index has no {wanted} that can be installed")
        assert made.returncode == 0, made.stderr
    return python


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    return subprocess.run(
        [str(python), *arguments],
        cwd=ROOT,
        env={**environment, "TBTUI_OTHER_HARBOR": ""},
        capture_output=True,
        text=True,
        check=False,
    )
