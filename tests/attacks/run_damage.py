"""Damages a run directory in one of many ways, chosen by a seed: as attackers and bad disks may."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEEP = 100_000
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 1e308, -1e308, 1e20, 0.5, "", "x",
    "\x9b31mred", "\x1b]52;c;aGk=\x07", "\u202eevil", "\0", "x" * 100_000, "../../../etc/passwd",
    "/dev/zero", "module:Class", "NaN", "1e999", [], {}, [None], {"": None}, [[]], ["x"] * 1000,
)  # fmt: skip
RAW = (
    "NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "[" * DEEP, '{"a":' * DEEP,
    '"\\ud800"', "", "nul", '"\\u0000"', "0x1",
)  # fmt: skip
"""As JSON texts, most of which are none."""


class Damage:
    """One seed's damage to one run directory."""

    def __init__(self, run: Path, seed: int) -> None:
        self._run = run
        self._random = random.Random(seed)

    def do(self) -> str:
        """Do the damage; returns what was done, for the message where a command fails on it."""
        kinds: list[Callable[[], str]] = [
            self._file, self._file, self._bytes, self._json_file, self._config,
            self._row, self._row, self._column, self._sample, self._schema, self._name,
        ]  # fmt: skip
        said = [self._random.choice(kinds)() for _ in range(self._random.choice((1, 1, 1, 2)))]
        return "; ".join(said)

    # Files

    def _any_file(self) -> Path:
        names = ("config.toml", "run.db", "run.lock", "log.txt", "metrics.jsonl", "control.sock",
                 "review_rules.toml", "output.txt", "run.db-wal", "run.db-shm", "run.db-journal",
                 "trials", "checkpoints", "trackers", "logs", "demos", "snapshots",
                 "notes.txt")  # fmt: skip
        places = ("checkpoints/*", "checkpoints/*/*", "trials/*/*", "snapshots/*/*", "demos/*")
        inside = [path for place in places for path in sorted(self._run.glob(place))]
        return self._random.choice([*(self._run / name for name in names), *inside])

    def _file(self) -> str:
        path = self._any_file()
        kind = replaced(path, self._random)
        return f"{path.relative_to(self._run)}: {kind}"

    def _name(self) -> str:
        """Something with a name that nothing of ours has."""
        name = self._random.choice(
            ("step-²", "step-x", "step-", "step-" + "9" * 200, "step-٣", "s\n\x1b[2J\x9b", "-rf",
             "turn-²²²²².json", "²²²²².pack", "x-t1.json", ".replaced-step-000001", "\u202ex",
             "t\udcff")
        )  # fmt: skip
        place = self._random.choice(
            ("", "checkpoints", "trials", "demos", "snapshots", "logs",
             *(str(each.relative_to(self._run)) for each in self._run.glob("snapshots/*")))
        )  # fmt: skip
        path = self._run / place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if self._random.random() < 0.5:
            path.mkdir(exist_ok=True)
        else:
            path.touch()
        return f"{place}/{name!a}: a strange name"

    def _bytes(self) -> str:
        files = [
            each
            for each in sorted(self._run.rglob("*"))
            if each.is_file() and not each.is_symlink()
        ]
        path = self._random.choice([each for each in files if each.stat().st_size < 1 << 26])
        data = bytearray(path.read_bytes())
        if self._random.random() < 0.3 or not data:
            at = self._random.randrange(len(data) + 1)
            path.write_bytes(bytes(data[:at]))
            return f"{path.relative_to(self._run)}: cut at {at}"
        for _ in range(self._random.choice((1, 10, 500))):
            data[self._random.randrange(len(data))] = self._random.randrange(256)
        path.write_bytes(bytes(data))
        return f"{path.relative_to(self._run)}: bytes changed"

    def _json_file(self) -> str:
        files = [*sorted(self._run.glob("checkpoints/*/trainer.json")),
                 *sorted(self._run.glob("trials/*/*.json")),
                 *sorted(self._run.glob("snapshots/*/*.json")),
                 *sorted(self._run.glob("demos/*.json")) * 3,
                 *sorted(self._run.glob("trials/*/recording.cast"))]  # fmt: skip
        if not files:
            return self._row()
        path = self._random.choice(files)
        lines = (
            path.read_text(errors="replace").split("\n")
            if path.suffix == ".cast"
            else [path.read_text()]
        )
        place = self._random.randrange(len(lines)) if self._random.random() < 0.5 else 0
        lines[place] = changed(lines[place], self._random)
        path.write_text("\n".join(lines), errors="replace")
        return f"{path.relative_to(self._run)}: {lines[place][:200]!r}"

    def _config(self) -> str:
        path = self._run / "config.toml"
        if not path.is_file() or path.is_symlink():
            return self._row()
        lines = path.read_text(errors="replace").split("\n")
        settings = [
            at for at, line in enumerate(lines) if " = " in line and not line.startswith("#")
        ]
        if not settings:
            return self._row()
        at = self._random.choice(settings)
        name = lines[at].partition(" = ")[0]
        value = self._random.choice(
            [*(json.dumps(each) for each in ODD if each is not None), *RAW, "1979-05-27", "inf"]
        )
        lines[at] = f"{name} = {value}"
        path.write_text("\n".join(lines))
        return f"config.toml: {lines[at][:100]}"

    # The journal

    def _db(self) -> contextlib.closing[sqlite3.Connection]:
        return contextlib.closing(sqlite3.connect(self._run / "run.db", isolation_level=None))

    def _in_db(self, work: Callable[[sqlite3.Connection], str]) -> str:
        if (self._run / "run.db").is_symlink() or not (self._run / "run.db").is_file():
            return "no journal left to damage"
        try:
            with self._db() as db:
                return work(db)
        except sqlite3.Error as error:
            return f"the journal is damaged already: {error}"

    def _row(self) -> str:
        """Something in an event's body."""

        def work(db: sqlite3.Connection) -> str:
            kinds = [kind for (kind,) in db.execute("SELECT DISTINCT kind FROM events")]
            kind = self._random.choice(sorted(map(str, kinds)))
            rows = db.execute("SELECT seq, body FROM events WHERE kind = ?", (kind,)).fetchall()
            seq, body = self._random.choice(rows)
            new = changed(str(body), self._random)
            db.execute("UPDATE events SET body = ? WHERE seq = ?", (new, seq))
            return f"{kind} {seq}: {_difference(str(body), new)}"

        return self._in_db(work)

    def _column(self) -> str:
        def work(db: sqlite3.Connection) -> str:
            table, columns = self._random.choice(
                (("events", ("seq", "time", "kind", "trial", "body")),
                 ("samples", ("trial", "turn", "carried", "stop_reason", "weights_version",
                              "temperature", "seconds", "summary", "id")),
                 ("trained", ("trial", "step", "logprobs")))
            )  # fmt: skip
            column = self._random.choice(columns)
            value = self._random.choice(
                (0, -1, 2**62, 1e308, float("inf"), -1e308, "", "x", "\x9b", b"\xff\xfe", b"",
                 "[" * DEEP)
            )  # fmt: skip
            rows = [row for (row,) in db.execute(f"SELECT rowid FROM {table}")]
            db.execute(
                f"UPDATE OR REPLACE {table} SET {column} = ? WHERE rowid = ?",
                (value, self._random.choice(rows)),
            )
            return f"{table}.{column} = {str(value)[:40]!r}"

        return self._in_db(work)

    def _sample(self) -> str:
        def work(db: sqlite3.Connection) -> str:
            column = self._random.choice(
                ("new_prompt_ids", "completion_ids", "logprobs", "pieces", "prompt_text")
            )
            value = self._random.choice(
                (b"", b"\0" * 7, "text", 1, zlib.compress(b"\0" * (1 << 30), 9)[:-4],
                 zlib.compress(b"[" * DEEP), zlib.compress(b'"text"'), zlib.compress(b"[1, null]"),
                 zlib.compress(b"[]"), zlib.compress(b"\0\0\0\x80" * 9), zlib.compress(b"x")[:-3])
            )  # fmt: skip
            db.execute(f"UPDATE samples SET {column} = ?", (value,))
            return f"samples.{column} = {str(value)[:40]}"

        return self._in_db(work)

    def _schema(self) -> str:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
        statement = self._random.choice(
            ("DROP TABLE events", "DROP TABLE samples", "DELETE FROM events",
             "DELETE FROM events WHERE kind = 'run_started'", "PRAGMA user_version = 7",
             "PRAGMA user_version = -1", "DELETE FROM events WHERE seq % 2",
             "UPDATE events SET kind = 'run_started'", "UPDATE events SET kind = 'no_such_kind'",
             "UPDATE events SET trial = 'x'", "UPDATE events SET time = -time",
             "UPDATE events SET seq = seq + 4611686018427387904",
             "INSERT INTO events VALUES (4611686018427387904, 0, 'noted', NULL, '{}')",
             "INSERT INTO events VALUES (-5, 0, 'noted', NULL, '{}')",
             "ALTER TABLE events DROP COLUMN time", "ALTER TABLE events RENAME COLUMN body TO b",
             "DROP INDEX events_by_kind", "CREATE TABLE other (x)",
             "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END",
             f"ALTER TABLE events RENAME TO old; CREATE VIEW events AS {endless}"
             " SELECT i AS seq, 1.0 AS time, 'noted' AS kind, NULL AS trial,"
             " '{\"level\": \"info\", \"text\": \"x\"}' AS body FROM n",
             f"ALTER TABLE samples RENAME TO old; CREATE VIEW samples AS {endless}"
             " SELECT i AS id FROM n",
             "ALTER TABLE events RENAME TO old; CREATE VIRTUAL TABLE events USING"
             " fts5(seq, time, kind, trial, body)",
             "ALTER TABLE events RENAME TO old; CREATE TABLE events (seq INTEGER PRIMARY KEY,"
             " time, kind, trial, body AS (printf('%.*c', 100000000, 'x')))",
             "UPDATE events SET body = printf('%.*c', 50000000, '[') WHERE kind = 'run_started'")
        )  # fmt: skip

        def work(db: sqlite3.Connection) -> str:
            db.executescript(statement)
            return statement

        return self._in_db(work)


def replaced(path: Path, chance: random.Random) -> str:
    """Put something else in the place of a file or directory; returns what."""
    kind = chance.choice(
        ("fifo", "zero", "link to a device", "loop", "link away", "nowhere", "directory",
         "socket", "empty", "sparse", "deep", "binary", "missing")
    )  # fmt: skip
    _remove(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "zero":
            try:
                os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5))
            except PermissionError:
                path.symlink_to("/dev/zero")
        case "link to a device":
            path.symlink_to(chance.choice(("/dev/zero", "/dev/tty", "/dev/random")))
        case "loop":
            path.symlink_to(path)
        case "link away":
            path.symlink_to("/etc/passwd")
        case "nowhere":
            path.symlink_to("/nonexistent/file")
        case "directory":
            path.mkdir()
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener, contextlib.suppress(OSError):
                listener.bind(str(path))
        case "empty":
            path.write_bytes(b"")
        case "sparse":
            with path.open("wb") as file:
                file.truncate(1 << 36)
        case "deep":
            path.write_text(chance.choice(("[", "a=[", '{"a":', "a.")) * DEEP)
        case "binary":
            path.write_bytes(chance.randbytes(5_000))
    return kind


def changed(text: str, chance: random.Random) -> str:
    """A JSON text with one thing in it that is not what was written."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return chance.choice(RAW)
    if chance.random() < 0.15:
        return chance.choice((*RAW, json.dumps(chance.choice(ODD))))
    mark = "4711-0815"
    places = list(_places(document))
    if not places:
        return chance.choice(RAW)
    holder, key = chance.choice(places)
    if chance.random() < 0.15:
        del holder[key]
        return json.dumps(document)
    raw = chance.random() < 0.3
    holder[key] = mark if raw else chance.choice(ODD)
    written = json.dumps(document)
    return written.replace(f'"{mark}"', chance.choice(RAW)) if raw else written


def _places(value: Any) -> Any:
    """(container, key) of everything within."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from _places(each)


def _difference(old: str, new: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    return f"...{new[max(0, at - 40) : at + 60]!r}"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
