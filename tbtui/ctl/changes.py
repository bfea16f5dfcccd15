"""The changing half of `tbtui ctl`: one command to one run, and what came of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tbtui.command_line import say
from tbtui.ctl.output import print_json
from tbtui.ctl.reading import RunReading, read_run
from tbtui.ctl.targets import TargetError, choose_group, choose_run, choose_trial
from tbtui.ctl.verbs import run_is_so, trial_is_so
from tbtui.engines.control.client import ControlClient, ControlError
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import CommandDone
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory, writer
from tbtui.journal.vocabulary import CommandVerb
from tbtui.view.estimate import Outlook
from tbtui.view.waiting import doing, duration, waiting_for

DONE, FAILED = 0, 1
_POLL_SEC = 0.05


@dataclass(frozen=True, slots=True)
class Manner:
    """How a change is asked for."""

    reason: str = ""
    actor: str = ""
    """Empty: the user."""
    dry_run: bool = False
    wait: bool = True
    """For what comes of it."""
    patience_sec: float | None = None
    """None: as long as it takes."""
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class _Change:
    run: RunDirectory
    verb: CommandVerb
    target: str
    already: str = ""
    """Why there is nothing to do."""
    doing: str = ""
    """What the target does now."""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Result:
    ok: bool | None
    """None: nobody waited for it."""
    text: str
    command: str = ""


def change_run(verb: CommandVerb, run: str | None, manner: Manner) -> int:
    """Exit status: 0 done, 1 refused. Raises `TargetError`, `JournalError`."""
    directory = choose_run(run)
    with read_run(directory) as reading:
        already = run_is_so(verb, reading.state) if reading.live else ""
        if verb == "stop" and not reading.live:
            already = f"{directory.name} is over already ({reading.status})"
        now = waiting_for(Outlook(reading.state, reading.now))
        change = _Change(directory, verb, RUN, already, f"waits for {now}")
        _require_live(reading, change)
    return _carry_out(change, manner)


def type_in_trial(
    what: Sequence[str], trial: str, run: str | None, manner: Manner, *, keys: bool, enter: bool
) -> int:
    """As `change_run`. `keys`: `what` are names of keys, else words of one text."""
    from tbtui.journal.typed import Typed, TypedError, from_arguments, to_arguments

    parts = [Typed("key", name) for name in what] if keys else [Typed("text", " ".join(what))]
    arguments = to_arguments([*parts, *([Typed("key", "Enter")] if enter else [])])
    try:
        from_arguments(arguments)
    except TypedError as error:
        raise TargetError(str(error)) from error
    return change_trial("type", trial, run, manner, arguments)


def change_trial(
    verb: CommandVerb,
    trial: str,
    run: str | None,
    manner: Manner,
    arguments: Mapping[str, Any] | None = None,
) -> int:
    """As `change_run`."""
    with read_run(choose_run(run)) as reading:
        view = choose_trial(trial, reading.state)
        since = f" {duration(reading.now - view.phase_since)}" if view.live else ""
        already = trial_is_so(verb, view)
        now = f"{doing(view)}{since}"
        change = _Change(reading.directory, verb, view.trial, already, now, arguments or {})
        _require_live(reading, change)
    return _carry_out(change, manner)


def relabel_trial(
    trial: str, reward: float | None, run: str | None, manner: Manner, *, take_back: bool
) -> int:
    """As `change_run`. `take_back`: the verifier's reward again, in place of a `reward`."""
    if (reward is None) != take_back:
        raise TargetError("relabel: give --reward R, or --verdict for the verifier's again")
    if reward is not None and not math.isfinite(reward):
        raise TargetError(f"--reward {reward}: should be a finite number")
    if reward is not None and not manner.reason.strip():
        raise TargetError("relabel: say why with --reason; it is kept beside the verdict")
    return change_trial("relabel", trial, run, manner, {"reward": reward})


def accept_step(step: int | None, run: str | None, manner: Manner) -> int:
    """As `change_run`. `step`: None is the earliest under review."""
    directory = choose_run(run)
    with read_run(directory) as reading:
        now = waiting_for(Outlook(reading.state, reading.now))
        arguments = {} if step is None else {"step": step}
        change = _Change(directory, "accept", RUN, "", f"waits for {now}", arguments)
        _require_live(reading, change)
    return _carry_out(change, manner)


def refill_group(group: str, run: str | None, manner: Manner) -> int:
    """As `change_run`."""
    with read_run(choose_run(run)) as reading:
        view = choose_group(group, reading.state)
        now = f"{len(view.trials)} trials of {view.task}"
        change = _Change(reading.directory, "refill", view.group, doing=now)
        _require_live(reading, change)
    return _carry_out(change, manner)


def change_settings(settings: Sequence[str], run: str | None, manner: Manner) -> int:
    """As `change_run`; `settings` are `name=value`. Raises `ConfigError` too."""
    from tbtui.config import (
        ConfigError,
        absolute,
        is_file,
        live_effects,
        names_of,
        parse_settings,
        to_json,
    )
    from tbtui.config import settings as known

    if files := [each for each in settings if is_file(each)]:
        raise ConfigError(f"{files[0]}: a live run takes no file of settings; write name=value")
    # A relative path is one from here, not from where the run was started.
    try:
        parsed = to_json(absolute(parse_settings(settings)))
    except ConfigError as error:
        if names_of(settings) <= known().keys():
            raise
        changeable = ", ".join(live_effects())
        raise ConfigError(f"{error}; what a live run can change: {changeable}") from error
    values = {name: parsed[name] for name in sorted(names_of(settings))}
    directory = choose_run(run)
    with read_run(directory) as reading:
        before = reading.state.settings
        same = all(name in before and before[name] == value for name, value in values.items())
        already = "it is so already" if same else ""
        shown = ", ".join(f"{name}={before.get(name)}" for name in values)
        change = _Change(directory, "set", RUN, already, f"has {shown}", values)
        _require_live(reading, change)
    return _carry_out(change, manner)


def _require_live(reading: RunReading, change: _Change) -> None:
    if not reading.live and not change.already:
        name = reading.directory.name
        raise TargetError(f"{name} is not live ({reading.status}): nothing to {change.verb}")


def _carry_out(change: _Change, manner: Manner) -> int:
    if change.already:
        return _tell(change, _Result(True, change.already), manner)
    try:
        return _tell(change, asyncio.run(_ask(change, manner)), manner)
    except ControlError as error:
        return _tell(change, _Result(False, str(error)), manner)


async def _ask(change: _Change, manner: Manner) -> _Result:
    client, welcome = await ControlClient.open(change.run, manner.actor)
    try:
        if manner.dry_run:
            held = welcome.exclusive
            would = f"{welcome.holder} has the controls for itself" if held else "would be asked"
            return _Result(not held, would)
        reader = JournalReader(change.run)
        try:
            after = reader.last_seq()
            command = await client.ask(
                Command(
                    change.verb,
                    change.target,
                    reason=manner.reason,
                    arguments=change.arguments,
                )
            )
            if not manner.wait:
                return _Result(None, "asked", command)
            async with asyncio.timeout(manner.patience_sec):
                return await _answer(change, command, reader, after)
        except TimeoutError:
            text = f"no answer within {manner.patience_sec:g} s; it stays asked"
            return _Result(False, text, command)
        finally:
            reader.close()
    finally:
        client.close()


async def _answer(change: _Change, command: str, reader: JournalReader, after: int) -> _Result:
    """What the journal says came of it; of a run that is stopped, when it is over."""
    ends = change.verb == "stop" and change.target == RUN
    text = "the run is over"
    while True:
        # In this order: what it wrote before it ended is read.
        live = writer(change.run) is not None
        for entry in reader.read_kinds(["command_done"], after):
            after = entry.seq
            if isinstance(entry.event, CommandDone) and entry.event.command == command:
                text = entry.event.result
                if not ends or not entry.event.ok:
                    return _Result(entry.event.ok, text, command)
        if not live:
            return _Result(ends, text if ends else "the run ended first", command)
        await asyncio.sleep(_POLL_SEC)


def _tell(change: _Change, result: _Result, manner: Manner) -> int:
    if manner.as_json:
        print_json(
            {
                "run": change.run.name,
                "verb": change.verb,
                "target": change.target,
                "doing": change.doing,
                "dry_run": manner.dry_run,
                "changed": bool(result.command),
                "ok": result.ok,
                "result": result.text,
                "command": result.command or None,
            }
        )
    else:
        _say(change, result, manner)
    return FAILED if result.ok is False else DONE


def _say(change: _Change, result: _Result, manner: Manner) -> None:
    import typer

    from tbtui.console.texts import given
    from tbtui.terminal import visible

    if manner.dry_run and result.ok and not change.already:
        what = change.run.name if change.target == RUN else f"{change.target} of {change.run.name}"
        arguments = f" {given(change.arguments)}" if change.arguments else ""
        line = f"would {change.verb}{arguments}: {what} ({change.doing})"
    else:
        line = result.text
    if result.ok is False:
        say(line)
    else:
        typer.echo(visible(line))
