"""What the start-up path imports, seen from a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"textual", "bittty", "harbor", "litellm", "tinker", "wandb", "numpy", "tokenizers"}


def imported_by(program: str) -> set[str]:
    """Top-level modules that a program has imported by its end."""
    listing = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys\n{program}\nprint(*{{m.partition('.')[0] for m in sys.modules}})",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(listing.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["tasks", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "from tbtui.cli import main\n"
        f"sys.argv = ['tbtui', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )
    assert not imported_by(program) & HEAVY


def test_a_headless_run_never_imports_textual_nor_harbor() -> None:
    modules = imported_by(
        "import tbtui.launch, tbtui.engines.headless, tbtui.console, tbtui.view.fold"
    )
    assert "tbtui" in modules
    assert not modules & {"textual", "bittty", "harbor", "litellm", "tinker", "wandb"}
