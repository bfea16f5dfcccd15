"""`tbtui demos`: lists, shows, edits, decides on and exports a run's demonstrations."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import typer

from tbtui.command_line import say
from tbtui.config import parse_settings
from tbtui.journal.demonstrations import (
    DemonstratedAnswer,
    Demonstration,
    DemonstrationError,
    Demonstrations,
    Status,
    answer_object,
    answer_text,
    read_answer,
)
from tbtui.journal.rundir import find_run
from tbtui.paths import expanded
from tbtui.terminal import one_line, visible, visible_lines
from tbtui.view.exports import write_export

_LONGEST_COMMANDS = 60


def _of(run: str) -> Demonstrations:
    return Demonstrations(find_run(run, parse_settings([]).logs_dir))


def print_demonstrations(run: str, *, as_json: bool) -> None:
    """Print a line for each, the oldest first. Raises `UserError`."""
    known = _of(run).all()
    if as_json:
        typer.echo(json.dumps([_row(each) for each in known]))
        return
    if not known:
        say(f"{run} has no demonstrations: take a trial over (i), type, and give it back")
        return
    width = max(len(each.id) for each in known)
    for each in known:
        commands = one_line(" ".join(_keys(each.answer)), _LONGEST_COMMANDS)
        typer.echo(visible(f"{each.status:<9} {each.id:<{width}}  {each.task}  {commands}"))


def show_demonstration(run: str, name: str, *, as_json: bool) -> None:
    """Print one. Raises `UserError`."""
    found = _of(run).find(name)
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(found) | {"answer": answer_object(found.answer)}))
        return
    typer.echo(visible(f"{found.id}: {found.task}, turn {found.turn}, typed by {found.actor}"))
    typer.echo(f"{found.status}{_decided(found)}")
    answer = answer_text(found.answer, compact=False)
    for title, text in (("asked", found.prompt), ("answer", answer)):
        typer.echo("\n".join(["", f"-- {title} --", *visible_lines(text)]))


def decide(run: str, names: Sequence[str], status: Status, answer_file: Path | None = None) -> None:
    """Accept or drop demonstrations. Raises `UserError`, and then none is changed."""
    files = _of(run)
    answer = None
    if answer_file is not None:
        if len(names) > 1:
            raise DemonstrationError("--answer: it is the answer of one demonstration; name one")
        try:
            answer = read_answer(answer_file.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise DemonstrationError(f"--answer {answer_file}: {error}") from error
    for found in [files.find(name) for name in names]:
        files.write(found.reviewed(status, getpass.getuser(), answer))
        typer.echo(f"{found.id}: {status}")
    if status == "accepted":
        say("a run with demos=train trains on them, from its next step on")


def edit_demonstration(run: str, name: str) -> None:
    """Edit one's answer in an editor. Raises `UserError`."""
    files = _of(run)
    found = files.find(name)
    answer = read_answer(_in_editor(answer_text(found.answer, compact=False)))
    if answer == found.answer:
        typer.echo(f"{found.id}: as it was")
        return
    files.write(found.reviewed(found.status, getpass.getuser(), answer))
    typer.echo(f"{found.id}: edited; {found.status}")


def _in_editor(text: str) -> str:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="tbtui-demo-") as place:
        file = Path(place, "answer.json")
        file.write_text(text, "utf-8")
        try:
            done = subprocess.run([*shlex.split(editor), str(file)], check=False)
            edited = file.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise DemonstrationError(f"EDITOR={editor}: {error}; set it to your editor") from error
    if done.returncode != 0:
        raise DemonstrationError(f"EDITOR={editor} ended with {done.returncode}: nothing changed")
    return edited


def export_demonstrations(run: str, file: Path | None, *, everything: bool) -> None:
    """Write them as chat messages. Raises `UserError`."""
    known = _of(run).all()
    chosen = [each for each in known if everything or each.status == "accepted"]
    if not chosen:
        raise DemonstrationError(
            f"{run}: nothing to export: of {len(known)} demonstrations none is accepted"
        )
    # In ASCII: a terminal obeys nothing of it, and no reader takes another character for a line's
    # end.
    lines = "".join(json.dumps(chat(each)) + "\n" for each in chosen)
    if file is None:
        typer.echo(lines, nl=False)
        return
    write_export(expanded(file), lines, overwrite=True)
    typer.echo(f"{file}: {len(chosen)} demonstrations")


def chat(demonstration: Demonstration) -> dict[str, Any]:
    """One as fine-tuning programs take it."""
    said = [{"role": each.role, "content": each.content} for each in demonstration.messages]
    return {
        "messages": [*said, {"role": "assistant", "content": demonstration.text}],
        "task": demonstration.task,
        "trial": demonstration.trial,
    }


def _row(each: Demonstration) -> dict[str, Any]:
    return {
        "id": each.id,
        "status": each.status,
        "task": each.task,
        "trial": each.trial,
        "turn": each.turn,
        "actor": each.actor,
        "time": each.time,
        "commands": _keys(each.answer),
        "reviews": msgspec.to_builtins(each.reviews),
    }


def _keys(answer: DemonstratedAnswer) -> list[str]:
    return [each.keystrokes for each in answer.commands]


def _decided(found: Demonstration) -> str:
    return f" by {visible(found.reviews[-1].actor)}" if found.reviews else ""
