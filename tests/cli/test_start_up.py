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


def modules_of(program: str) -> set[str]:
    """Modules that a program has imported by its end."""
    code = f"import sys\n{program}\nprint(*sys.modules)"
    listing = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(listing.stdout.splitlines()[-1].split())


def imported_by(program: str) -> set[str]:
    """The top-level ones."""
    return {name.partition(".")[0] for name in modules_of(program)}


def command(*words: str) -> str:
    """The program that is `tbtui` with these words."""
    return (
        f"from tbtui.cli import main\nsys.argv = ['tbtui', *{words!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["tasks", "--help"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    assert not imported_by(command(*words)) & HEAVY


def test_a_command_waits_for_its_own_module_alone() -> None:
    imported = modules_of(command("doctor", "--help"))
    nouns = {"run", "runs", "tools", "tasks", "prime_rl"}
    assert {noun for noun in nouns if f"tbtui.cli.{noun}" in imported} == {"tools"}
    assert "tbtui.ctl.app" not in imported


def test_every_command_is_built_under_the_name_that_it_is_listed_by() -> None:
    for name in COMMANDS:
        part = typer.Typer()
        COMMANDS[name](part)
        assert name in get_group(part).commands


@pytest.mark.parametrize(
    ("names", "spared"),
    [
        pytest.param("commands.attach ctl.targets show_run ui.app ui.runs", LATER, id="replay"),
        pytest.param(
            "launch engines.host console view.fold", HEAVY - {"numpy", "tokenizers"}, id="headless"
        ),
        # All that runs before the first line of `--no-ui`: settings are checked, and refused.
        pytest.param(
            "launch engines.make_run console", {"numpy", "harbor", "textual"}, id="refusal"
        ),
    ],
)
def test_what_stands_before_the_first_frame_or_line_imports_little(
    names: str, spared: set[str]
) -> None:
    program = "".join(f"import tbtui.{name}\n" for name in names.split())
    assert not imported_by(program) & spared


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
