"""Run directories from elsewhere: whatever is in one, a command ends, with one line and a status.

A real run is made once; seeded damage (`run_damage.py`) is done to copies of it, and some
of the commands that read a run directory are tried on each. `TBTUI_DAMAGED_RUNS=600` tries so many.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from typer.testing import CliRunner, Result

from tbtui.chat import Message
from tbtui.cli import app
from tbtui.config import RunConfig, to_toml
from tbtui.engines.grpo.checkpoint_state import CheckpointError, best
from tbtui.journal.database import JournalError, require_format
from tbtui.journal.demonstrations import Demonstrations
from tbtui.journal.events import BestCheckpoint, Noted
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory, add_note
from tbtui.journal.writer import JournalWriter
from tbtui.show_run import (
    default_settings,
    live_effect,
    make_settings,
    make_trial_tools,
    tasks_of_run,
)
from tbtui.ui.application import TbtuiApp
from tbtui.ui.runs import ReplayedRun
from tbtui.ui.services import RecordedRun, Services
from tbtui.ui.terminal.recordings import RecordingReader, Scrub
from tbtui.view.reading import state_at_end
from tests.attacks.run_damage import Damage
from tests.engines.test_outages import small_files
from tests.events import write_journal
from tests.journal.test_demonstrations import demonstration
from tests.ui.hostile import check_screen
from tests.ui.opening import press, window
from tests.view.story import one_step_run

MANY = int(os.environ.get("TBTUI_DAMAGED_RUNS", "10"))
FIRST = int(os.environ.get("TBTUI_DAMAGED_RUNS_FROM", "0"))
TRIED = 8
"""Commands for each damaged run."""
IN_APP = int(os.environ.get("TBTUI_DAMAGED_RUNS_IN_APP", "5"))
"""Every how many-th is opened in the app, too."""
HANGS_SEC = 60
MEMORY = 2 << 30
NOTICE = re.compile("left out here$|^tbtui: (passed over: |[0-9]+ forks? of |bisection over )")
"""May stand before the line that says why it ends."""

COMMANDS = [
    "runs --logs-dir LOGS",
    "runs --logs-dir LOGS --json",
    "runs search echo RUN",
    "compare RUN RUN",
    "compare RUN RUN --json",
    "export RUN --format html --out OUT --overwrite",
    "export RUN --format atif --out OUT --overwrite",
    "export RUN --format jsonl --out OUT --overwrite",
    "export RUN --format cast --out OUT --overwrite",
    "whatif RUN",
    "ctl run show RUN",
    "ctl trial list --ended --run RUN --json",
    "ctl trial list --ended --run RUN",
    "ctl group list --run RUN",
    "ctl task list --run RUN",
    "ctl config show --run RUN",
    "ctl run pause RUN",
    "ctl trial show TRIAL --run RUN --content",
    "ctl trial events TRIAL --run RUN --content",
    "ctl trial events TRIAL --run RUN --json",
    "diagnose RUN",
    "diagnose RUN --json",
    "demos list RUN",
    "demos list RUN --json",
    "demos show RUN s",
    "demos accept RUN s",
    "demos export RUN --all",
    "runs note RUN",
    "runs journal RUN",
    "runs search echo RUN --json",
    "export RUN --format csv --metric all --out OUT --overwrite",
    "export RUN --format svg --out OUT --overwrite",
    "export-model RUN OUT/model",
    "fleet --here --no-ui --logs-dir LOGS",
    "fleet --here --json --logs-dir LOGS",
    "bisect RUN copy-01",
    "fork RUN TRIAL --turn 1 -n 1 --no-ui environment_type=none-such",
    "fork RUN TRIAL --turn bisect --checkpoint 1 --no-ui environment_type=none-such",
    "replay RUN",
    "replay RUN TRIAL --at end --beside RUN",
    "attach RUN",
    "run --resume RUN --print-config",
    "run --resume RUN --explain",
    # Refused at the last moment, and read until then.
    "run --resume RUN --no-ui environment_type=none-such",
    "eval RUN --no-ui environment_type=none-such",
    "eval RUN --latest --no-ui environment_type=none-such",
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of one step; of its trials two have their files left."""
    place = tmp_path_factory.mktemp("sound")
    subprocess.run(
        [sys.executable, "-m", "tbtui", "run", "--no-ui", "max_steps=1", "batch_size=2",
         "group_size=2", "n_workers=1", "eval_every=0", f"logs_dir={place}", "run_name=small",
         "snapshots=turns", "keep_snapshots=true"],
        check=True, timeout=110, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        env={**os.environ, "XDG_STATE_HOME": str(place / "state")},
    )  # fmt: skip
    run = place / "small"
    with closing(sqlite3.connect(run / "run.db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("PRAGMA journal_mode = DELETE")
    trials = sorted(run.glob("trials/s*"))
    for other in {*run.glob("trials/*"), *trials} - set(trials[:2]):
        shutil.rmtree(other)
    for other in {*run.glob("snapshots/*")} - {run / "snapshots" / trials[0].name}:
        shutil.rmtree(other)
    Demonstrations(RunDirectory(run)).write(demonstration(trials[0].name))
    add_note(RunDirectory(run), "a note")
    return run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextlib.contextmanager
def limit() -> Iterator[None]:
    """An error in the middle of what takes more time or memory than anything here may."""

    def over(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(HANGS_SEC)
    room = resource.getrlimit(resource.RLIMIT_AS)
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, room[1]))
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, room)
        signal.signal(signal.SIGALRM, before)


def complaints(command: str, run: Path, *, refused: bool = False) -> list[str]:
    """What is wrong with how a command ends; `refused`: it should be."""
    words = {"LOGS": run.parent, "RUN": run, "TRIAL": next(iter(_trials(run)), run).name}
    words |= {"OUT": run.parent / "out", "OUT/model": run.parent / "out" / "model"}
    arguments = [str(words.get(each, each)) for each in command.split()]
    with limit():
        result = CliRunner().invoke(app, arguments)
    return ending(result, binary="journal" in command, statuses=(2,) if refused else (0, 1, 2))


def ending(
    result: Result, *, binary: bool = False, statuses: tuple[int, ...] = (0, 1, 2)
) -> list[str]:
    """What is wrong with it; `binary`: the output is no text."""
    found = []
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        found.append(_traceback(result.exception))
    elif result.exit_code not in statuses:
        found.append(f"status {result.exit_code}")
    lines = [each for each in result.stderr.splitlines() if not NOTICE.search(each)]
    if result.exit_code == 2 and len(lines) != 1:
        found.append(f"not one line: {result.stderr[:300]!r}")
    shown = result.stderr if binary else result.output
    if any(each in shown for each in ("Traceback", "\x1b", "\x9b", "\u202e", "\x07")):
        found.append("a traceback or an escape sequence in the output")
    return found


def screens(run: Path) -> list[str]:
    """The same of what the app reads; it shows a `JournalError`."""
    directory = RunDirectory(run.resolve())
    with limit():
        try:
            with (
                contextlib.suppress(JournalError),
                closing(JournalReader(directory, lenient=True)) as reader,
            ):
                state_at_end(reader)
            for trial in ("", *(path.name for path in _trials(run))):
                recording = RecordingReader(directory.recording(trial))
                for _ in range(50):
                    if not recording.advance():
                        break
                recording.close()
                scrub = Scrub(directory, trial)
                scrub.screen(1e9)
                scrub.change(1e9, 1)
                scrub.close()
        except Exception as error:  # noqa: BLE001 - the attack's finding
            return [_traceback(error)]
    return []


KEYS = (
    "dollar_sign less_than_sign greater_than_sign right_parenthesis dollar_sign 1 escape 4 escape"
    " 6 escape enter n J left_square_bracket p escape full_stop 5 escape 6 escape 2 escape g escape"
    " escape D escape V escape M x x p escape escape c escape R down m escape f3 escape f4 enter"
    " escape colon s escape escape ctrl+f e c enter escape escape T down escape question_mark"
)
"""From screen to screen of a recorded run."""


async def app_on(run: RunDirectory) -> None:
    services = Services(
        library=tasks_of_run,
        trial_tools=make_trial_tools,
        settings=make_settings,
        live_effect=live_effect,
        defaults=default_settings,
    )
    shown = TbtuiApp(RecordedRun(run), recorded=ReplayedRun(run), live=False, services=services)
    async with window(shown, (120, 40)) as pilot:
        for key in KEYS.split():
            await press(pilot, key)
            check_screen(pilot)


def in_the_app(run: Path) -> list[str]:
    """The same of the app on the recorded run, from screen to screen."""
    with limit():
        try:
            require_format(RunDirectory(run))
            asyncio.run(app_on(RunDirectory(run)))
        except JournalError:
            return []
        except Exception as error:  # noqa: BLE001 - the attack's finding
            return [f"in the app: {_traceback(error)}"]
    return []


def _traceback(error: BaseException) -> str:
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if "/tbtui/" in each.filename
    ]
    where = " < ".join(f"{Path(each.filename).name}:{each.lineno}" for each in frames[:-4:-1])
    return f"traceback: {error!r:.200} at {where}"


def _trials(run: Path) -> list[Path]:
    try:
        return sorted((run / "trials").iterdir())
    except OSError:
        return []


def copied(sound: Path, place: Path, name: str = "small") -> Path:
    run = place / "runs" / name
    shutil.copytree(sound, run, symlinks=True)
    return run


@pytest.mark.slow
@pytest.mark.timeout(HANGS_SEC * 10 if MANY <= 10 else 0)
def test_damaged_in_many_ways(sound: Path, home: Path) -> None:
    broken: dict[int, list[str]] = {}
    for seed in range(FIRST, FIRST + MANY):
        place = home / str(seed)
        run = copied(sound, place, "small" if seed % 4 else "s\x1b[2J\x9b\u202e")
        done = Damage(run, seed).do()
        tried = random.Random(seed).sample(COMMANDS, TRIED)
        found = [f"{each}: {what}" for each in tried for what in complaints(each, run)]
        shown = in_the_app(run) if seed % IN_APP == 0 else []
        if found := [*found, *screens(run), *shown]:
            broken[seed] = [f"seed {seed}: {done}: {each}" for each in found]
            sys.stdout.write("\n".join(broken[seed]) + "\n")
            sys.stdout.flush()
        shutil.rmtree(place)
    sys.stdout.write(f"damaged runs: {MANY} tried, {MANY - len(broken)} held\n")
    assert not broken


def _loop_in_checkpoint(run: Path) -> None:
    file = next(run.glob("checkpoints/*/policy.npz"))
    file.unlink()
    file.symlink_to(file)


def _schema_no_text(run: Path) -> None:
    with closing(sqlite3.connect(run / "run.db", autocommit=True)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    content = (run / "run.db").read_bytes()
    (run / "run.db").write_bytes(content.replace(b"NOT NULL", b"NOT NUL\xc2", 1))


def _trial_of_bytes(run: Path) -> None:
    with closing(sqlite3.connect(run / "run.db", autocommit=True)) as db:
        db.execute("UPDATE events SET trial = x'fffe' WHERE kind = 'trial_finished'")


def _status_of_escapes(run: Path) -> None:
    with closing(sqlite3.connect(run / "run.db", autocommit=True)) as db:
        db.execute(
            "UPDATE events SET body = json_set(body, '$.status', ?) WHERE kind = 'run_finished'",
            ("\x9b31mred",),
        )


@pytest.mark.slow
@pytest.mark.uid
@pytest.mark.parametrize(
    "damage", [_loop_in_checkpoint, _schema_no_text, _trial_of_bytes, _status_of_escapes]
)
def test_damaged_in_a_way_once_found(
    sound: Path, home: Path, damage: Callable[[Path], None]
) -> None:
    run = copied(sound, home)
    damage(run)
    assert [what for each in COMMANDS for what in complaints(each, run)] + screens(run) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_where_nothing_more_can_be_written(sound: Path, home: Path) -> None:
    """No command ends in a traceback, and none leaves half a file behind."""
    run = copied(sound, home)
    commands = [*COMMANDS, "tasks new counting --into OUT"]
    with small_files(0):
        found = [f"{each}: {what}" for each in commands for what in complaints(each, run)]
    assert found == []
    out = home / "runs" / "out"
    assert not [path for path in out.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "place", ["log.txt", "trials", "checkpoints", "logs/worker-1.log", "trials/t/recording.cast",
              "config.toml.new", "output.txt", "trackers/wandb.json", "demos/s-t1.json",
              "snapshots/t/turn-00001.partial", "tensorboard/events.out.tfevents.1"]
)  # fmt: skip
def test_a_run_that_goes_on_writes_nowhere_else(home: Path, place: str) -> None:
    run = recorded(home)
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    precious = elsewhere / "precious"
    precious.write_text("mine")
    planted = run.path / place
    planted.parent.mkdir(parents=True, exist_ok=True)
    if planted.is_dir():
        planted.rmdir()
    planted.symlink_to(elsewhere if place in ("trials", "checkpoints") else precious)
    result = CliRunner().invoke(app, ["run", "--no-ui", "--resume", str(run.path), "max_steps=9"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert str(planted) in result.stderr
    assert [each.name for each in elsewhere.iterdir()] == ["precious"]
    assert precious.read_text() == "mine"


def _planted(place: str, text: str = "") -> Callable[[RunDirectory, Path], None]:
    """A file in the run; without a text a directory."""

    def plant(run: RunDirectory, precious: Path) -> None:
        path = run.path / place
        path.parent.mkdir(exist_ok=True)
        if text:
            path.write_text(text)
        else:
            path.mkdir()

    return plant


def _linked(place: str) -> Callable[[RunDirectory, Path], None]:
    """A link out of the run in the place of a file or directory."""

    def plant(run: RunDirectory, precious: Path) -> None:
        path = run.path / place
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(precious)

    return plant


def _demonstrated(**changes: Any) -> Callable[[RunDirectory, Path], None]:
    def write(run: RunDirectory, precious: Path) -> None:
        Demonstrations(run).write(msgspec.structs.replace(demonstration(), **changes))

    return write


def _demonstrations_elsewhere(run: RunDirectory, precious: Path) -> None:
    other = RunDirectory(precious.parent)
    Demonstrations(other).write(demonstration())
    (run.path / "demos").symlink_to(precious.parent / "demos")


ONCE_FOUND = [
    ("demos list RUN", _planted("demos/s-t1.json", '{"x":' + "[" * 100_000)),
    ("demos list RUN", _demonstrated(task="\x9b31m\x1b[2J")),
    ("demos show RUN s", _demonstrated(task="\x9b31m\x1b[2J")),
    ("demos export RUN --all", _demonstrated(messages=(Message("user", "\x9b31m"),))),
    ("fork RUN t1 --turn 1 --checkpoint 9", _planted("checkpoints/step-x")),
    ("eval RUN --latest --no-ui", _planted("checkpoints/step-²")),
]
LEADING_OUT = [
    ("demos list RUN", _demonstrations_elsewhere),
    ("demos accept RUN s", _demonstrations_elsewhere),
    ("runs journal RUN", _linked("run.db")),
]


@pytest.mark.parametrize(("command", "damage"), ONCE_FOUND + LEADING_OUT)
def test_a_command_ends_with_one_line(
    home: Path, command: str, damage: Callable[[RunDirectory, Path], None]
) -> None:
    run = recorded(home)
    precious = home / "elsewhere" / "precious"
    precious.parent.mkdir()
    shutil.copy(run.database, precious)
    damage(run, precious)
    before = {file: file.read_bytes() for file in precious.parent.rglob("*") if file.is_file()}
    assert complaints(command, run.path, refused=(command, damage) in LEADING_OUT) == []
    assert before == {file: file.read_bytes() for file in before}


def test_the_best_checkpoint_is_the_runs_own(home: Path) -> None:
    run = recorded(home)
    with JournalWriter(run, continues=True) as journal:
        journal.append(BestCheckpoint(step=1, pass_rate=1.0, path="../elsewhere"))
    with pytest.raises(CheckpointError, match="is not within the run"):
        best(run)


def test_a_demonstration_is_written_through_no_link(home: Path) -> None:
    run = recorded(home)
    Demonstrations(run).write(demonstration())
    precious = home / "precious"
    precious.write_text("mine")
    name = f"{demonstration().id}.json"
    (run.path / "demos" / f".{name}.{os.getpid()}").symlink_to(precious)
    assert complaints("demos accept RUN s", run.path) == []
    assert precious.read_text() == "mine"
    assert Demonstrations(run).find("s").status == "accepted"


def test_a_trigger_in_a_journal_does_nothing(home: Path) -> None:
    run = recorded(home)
    with closing(sqlite3.connect(run.database)) as db:
        db.execute("CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END")
        (before,) = db.execute("SELECT count(*) FROM events").fetchone()
    with JournalWriter(run, continues=True) as journal:
        journal.append(Noted(level="info", text="x"))
    with closing(JournalReader(run)) as reader:
        assert len(reader.read(0)) == before + 1


def test_nobody_else_can_read_a_run_or_hold_its_lock(home: Path) -> None:
    run = recorded(home)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(run.lock.stat().st_mode) == 0o600
    if os.geteuid() != 0:
        return
    run.path.chmod(0o755)  # as a person may
    for parent in run.path.parents[:-1]:
        parent.chmod(parent.stat().st_mode | 0o001)
    hold = (
        f"import fcntl, os; os.setuid(65534); fcntl.flock(open({str(run.lock)!r}), fcntl.LOCK_SH)"
    )
    held = subprocess.run([sys.executable, "-c", hold], capture_output=True, text=True, check=False)
    assert "PermissionError" in held.stderr


def recorded(home: Path) -> RunDirectory:
    """A run that may go on, without a policy's files."""
    run = RunDirectory.create(home / "runs" / "r")
    run.config.write_text(to_toml(RunConfig(logs_dir=home / "runs")))
    return write_journal(run, one_step_run())
