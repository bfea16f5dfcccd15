"""What the start-up path imports, seen from a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"textual", "bittty", "harbor", "litellm", "tinker", "wandb", "numpy", "tokenizers"}
LATER = (HEAVY | {"pydantic", "pydantic_core", "dotenv"}) - {"textual"}
"""What nothing before the app's first frame may import."""


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


def test_the_first_frame_waits_for_nothing_heavy() -> None:
    """All that the app imports until it has painted: its code, settings, themes and panes."""
    modules = imported_by(
        "import asyncio\n"
        "from pathlib import Path\n"
        "import tbtui.cli, tbtui.launch\n"
        "from tbtui.engines.host import EngineThread\n"
        "from tbtui.engines.request import RunRequest\n"
        "from tbtui.journal.rundir import RunDirectory\n"
        "from tbtui.ui.app import TbtuiApp\n"
        "async def painted(host):\n"
        "    app = TbtuiApp(host)\n"
        "    app._begin = lambda: None\n"
        "    async with app.run_test() as pilot:\n"
        "        await pilot.pause()\n"
        "def launch(config, view, detach, fps):\n"
        "    directory = RunDirectory(Path('nowhere'))\n"
        "    asyncio.run(painted(EngineThread(RunRequest(config, directory))))\n"
        "    return 0\n"
        "tbtui.launch.launch = launch\n"
        "sys.argv = ['tbtui', 'run', '--no-ui', 'seed=1']\n"
        "try:\n    tbtui.cli.main()\nexcept SystemExit:\n    pass"
    )
    assert {"tbtui", "textual"} <= modules
    assert not modules & LATER
