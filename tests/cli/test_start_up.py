"""What the start-up path imports, seen from a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer
from typer.main import get_group

from tbtui.cli import COMMANDS

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


def test_a_command_waits_for_its_own_module_alone() -> None:
    listing = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys\nfrom tbtui.cli import main\nsys.argv = ['tbtui', 'doctor', '--help']\n"
            "try:\n    main()\nexcept SystemExit:\n    pass\n"
            "print(*(m for m in sys.modules if m.startswith('tbtui.')))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    nouns = {"run", "runs", "tools", "tasks", "prime_rl"}
    imported = set(listing.stdout.splitlines()[-1].split())
    assert {noun for noun in nouns if f"tbtui.cli.{noun}" in imported} == {"tools"}
    assert "tbtui.ctl.app" not in imported


def test_every_command_is_built_under_the_name_that_it_is_listed_by() -> None:
    for name in COMMANDS:
        part = typer.Typer()
        COMMANDS[name](part)
        assert name in get_group(part).commands


def test_a_replay_and_a_joined_run_import_little_before_the_first_frame() -> None:
    modules = imported_by(
        "import tbtui.commands.attach, tbtui.ctl.targets, tbtui.show_run\n"
        "import tbtui.ui.app, tbtui.ui.runs"
    )
    assert {"tbtui", "textual"} <= modules
    assert not modules & LATER


def test_a_headless_run_never_imports_textual_nor_harbor() -> None:
    modules = imported_by("import tbtui.launch, tbtui.engines.host, tbtui.console, tbtui.view.fold")
    assert "tbtui" in modules
    assert not modules & {"textual", "bittty", "harbor", "litellm", "tinker", "wandb"}


def test_settings_are_checked_and_refused_without_numpy() -> None:
    """All that runs before the first line of `--no-ui`."""
    modules = imported_by("import tbtui.launch, tbtui.engines.make_run, tbtui.console")
    assert "tbtui" in modules
    assert not modules & {"numpy", "harbor", "textual"}


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
