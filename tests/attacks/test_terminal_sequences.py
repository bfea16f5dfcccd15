"""Nothing that a file says reaches a terminal as a command: clipboard writes (OSC 52), colours, C1
controls, right-to-left overrides; in lines, tables, errors and what is exported to the output."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tbtui.cli import app
from tbtui.config import RunConfig, to_toml
from tbtui.journal.events import decode
from tbtui.journal.rundir import RunDirectory
from tests.events import write_journal
from tests.view.story import one_step_run

PAYLOAD = "\x1b]52;c;cm0gLXJm\x07\x9b31m\x9d52;c;aGk=\x9c\u202eevil\u2066\x7f\r\n\x1b[2J"
COMMANDS = [
    "runs --logs-dir LOGS",
    "runs --logs-dir LOGS --json",
    "runs search evil RUN",
    "compare RUN RUN",
    "compare RUN nosuchPAYLOAD",
    "export RUN",
    "export RUN TRIAL --format html --out -",
    "export RUN TRIAL --format atif --out -",
    "export RUN TRIAL --format jsonl --out -",
    "export RUN TRIAL --format cast --out -",
    "export RUN nosuchPAYLOAD",
    "export nosuchPAYLOAD",
    "whatif RUN",
    "whatif RUN --step 99",
    "ctl run show RUN",
    "ctl run show RUN --content",
    "ctl trial list --ended --run RUN",
    "ctl trial show TRIAL --run RUN --content",
    "ctl group list --run RUN",
    "ctl task list --run RUN",
    "ctl run pause RUN",
    "replay RUN nosuchPAYLOAD",
    "attach RUN",
    "run --resume RUN --print-config max_steps=9",
    "run --resume RUN --explain max_steps=9",
    "run --resume RUN --no-ui",
    "run --no-ui max_steps=PAYLOAD",
    "run --no-ui noPAYLOAD=1",
    "run --no-ui PAYLOAD.toml",
    "run --no-ui hostile.toml",
    "run --no-ui tasks_dir=PAYLOAD",
    "run --no-ui run_name=PAYLOAD",
    "eval RUN --no-ui",
    "eval hostile-checkpoint --no-ui",
    "tasks list PAYLOAD",
    "tasks check PAYLOAD",
    "prime-rl check hostile.toml",
]


def spoken(value: Any) -> list[tuple[Any, Any]]:
    """Where texts are in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Any, Any]] = []
    for key, each in items:
        if isinstance(each, str):
            found.append((value, key))
        elif isinstance(each, dict | list):
            found += spoken(each)
    return found


def infect(run: RunDirectory, payload: str) -> list[str]:
    """Append the payload to every text of a run, where that is still an event; returns its trials'
    ids."""
    trials = []
    with closing(sqlite3.connect(run.database)) as db:
        for seq, kind, body in db.execute("SELECT seq, kind, body FROM events").fetchall():
            document = json.loads(body)
            for holder, key in spoken(document):
                before = holder[key]
                # What belongs together stays together: a payload is the same everywhere.
                holder[key] = before + payload
                try:
                    decode(kind, json.dumps(document))
                except ValueError:
                    holder[key] = before
            if "sample" in document:
                document["sample"] = None  # none is recorded
            trials.append(document.get("trial"))
            db.execute(
                "UPDATE events SET body = ?, trial = ? WHERE seq = ?",
                (json.dumps(document), trials[-1], seq),
            )
        db.commit()
    return list(dict.fromkeys(filter(None, trials)))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run whose every text has the payload in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    run = RunDirectory.create(tmp_path / "runs" / "evil\x9b31m\u202e")
    config = RunConfig(logs_dir=tmp_path / "runs", wandb_name=PAYLOAD, trackio_project="\u202ex")
    run.config.write_text(to_toml(config))
    write_journal(run, one_step_run())
    infect(run, PAYLOAD)
    (tmp_path / "hostile.toml").write_text(f'"x{json.dumps(PAYLOAD)[1:-1]}" = 1\n')
    checkpoint = tmp_path / "hostile-checkpoint"
    checkpoint.mkdir()
    state = {"format": 7, "tbtui_version": PAYLOAD}
    (checkpoint / "trainer.json").write_text(json.dumps(state))
    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_obeyed(run: RunDirectory, command: str) -> None:
    trial = f"t1{PAYLOAD}"
    words = {"RUN": str(run.path), "LOGS": str(run.path.parent), "TRIAL": trial}
    given = [words.get(each, each).replace("PAYLOAD", PAYLOAD) for each in command.split()]
    result = CliRunner().invoke(app, given)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (0, 1, 2)
    assert result.output
    obeyed = {each for each in result.output if not each.isprintable()} - {"\n"}
    assert not obeyed, result.output
