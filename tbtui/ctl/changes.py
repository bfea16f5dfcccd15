"""The changing half of `tbtui ctl`: one command to one run, and what came of it."""

from __future__ import annotations

import asyncio
import getpass
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tbtui.command_line import say
from tbtui.ctl.lists import print_json
from tbtui.ctl.options import CommandOptions
from tbtui.ctl.reading import RunReading, read_run
from tbtui.ctl.targets import choose_group, choose_run, choose_tasks, choose_trial
from tbtui.engines.control.client import ControlClient, ControlError
from tbtui.errors import UserError
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import CommandDone
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory, writer
from tbtui.journal.verbs import (
    WEIGHTS_UNDER_PRIME_RL,
    already_so,
    refusal,
    run_already_so,
    run_refusal,
)
from tbtui.view.curriculum import wish
from tbtui.view.standing import is_prime_rl, standing
from tbtui.view.times import Outlook
from tbtui.view.waiting import doing, duration, waiting_for
from tbtui.vocabulary import CommandVerb

DONE, FAILED = 0, 1
_POLL_SEC = 0.05


@dataclass(frozen=True, slots=True)
class _Change:
    run: RunDirectory
    verb: CommandVerb
    target: str
    already: str = ""
    """Why there is nothing to do."""
    refused: str = ""
    """Why the run would refuse it, as far as the journal tells."""
    doing: str = ""
    """What the target does now."""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Result:
    ok: bool | None
    """None: nobody waited for it."""
    text: str
    command: str = ""


def change_run(
    verb: CommandVerb,
    run: str | None,
    options: CommandOptions,
    arguments: Mapping[str, Any] | None = None,
) -> int:
    """Send a command on the whole run. Returns the exit status: 0 done, 1 refused.

    Raises `UserError`, `JournalError`, as all here.
    """
    with read_run(choose_run(run)) as reading:
        state = reading.state
        started = reading.live and state.started_at is not None
        already = run_already_so(verb, paused=state.paused) if started else ""
        if verb == "stop" and not reading.live:
            already = f"{reading.directory.name} is over already ({reading.status})"
        change = _Change(
            reading.directory,
            verb,
            RUN,
            already,
            run_refusal(verb, prime_rl=is_prime_rl(state)),
            f"waits for {waiting_for(Outlook(state, reading.now))}",
            arguments or {},
        )
        _require_live(reading, change)
    return _carry_out(change, options)


def type_in_trial(
    what: Sequence[str],
    trial: str,
    run: str | None,
    options: CommandOptions,
    *,
    keys: bool,
    enter: bool,
) -> int:
    """Type in a trial. `keys`: `what` are names of keys, else words of one text."""
    from tbtui.journal.commands import Typed, from_arguments, to_arguments

    parts = [Typed("key", name) for name in what] if keys else [Typed("text", " ".join(what))]
    arguments = to_arguments([*parts, *([Typed("key", "Enter")] if enter else [])])
    from_arguments(arguments)
    return change_trial("type", trial, run, options, arguments)


def write_to_agent(text: str, trial: str, run: str | None, options: CommandOptions) -> int:
    """Write to the agent of a paused trial."""
    from tbtui.journal.commands import message_text

    message_text({"text": text})
    return change_trial("message", trial, run, options, {"text": text})


def change_trial(
    verb: CommandVerb,
    trial: str,
    run: str | None,
    options: CommandOptions,
    arguments: Mapping[str, Any] | None = None,
) -> int:
    """Ask something of a trial."""
    with read_run(choose_run(run)) as reading:
        view = choose_trial(trial, reading)
        since = f" {duration(reading.now - view.phase_since)}" if view.live else ""
        stands = standing(view, reading.state, view.trial, options.actor or getpass.getuser())
        change = _Change(
            reading.directory,
            verb,
            view.trial,
            already_so(verb, stands),
            refusal(verb, stands),
            f"{doing(view)}{since}",
            arguments or {},
        )
        _require_live(reading, change)
    return _carry_out(change, options)


def relabel_trial(
    trial: str, reward: float | None, run: str | None, options: CommandOptions, *, take_back: bool
) -> int:
    """Give a trial another reward; with `take_back` the verifier's again, in place of `reward`."""
    if (reward is None) != take_back:
        raise UserError("relabel: give --reward R, or --verdict for the verifier's again")
    if reward is not None and not math.isfinite(reward):
        raise UserError(f"--reward {reward}: should be a finite number")
    if reward is not None and not options.reason.strip():
        raise UserError("relabel: say why with --reason; it is kept beside the verdict")
    return change_trial("relabel", trial, run, options, {"reward": reward})


def accept_step(step: int | None, run: str | None, options: CommandOptions) -> int:
    """Accept a step under review; None: the earliest."""
    return change_run("accept", run, options, {} if step is None else {"step": step})


def refill_group(group: str, run: str | None, options: CommandOptions) -> int:
    """Ask for fresh trials in a group."""
    with read_run(choose_run(run)) as reading:
        view = choose_group(group, reading)
        now = f"{len(view.trials)} trials of {view.task}"
        change = _Change(reading.directory, "refill", view.group, doing=now)
        _require_live(reading, change)
    return _carry_out(change, options)


def weigh_task(
    task: str, arguments: Mapping[str, Any], run: str | None, options: CommandOptions
) -> int:
    """Weigh a task, or all of a kind; `arguments`: just one of `weight`, `pinned`, `muted`."""
    if len(arguments) != 1:
        raise UserError("task weight: give one of WEIGHT, --pin, --unpin, --mute and --unmute")
    with read_run(choose_run(run)) as reading:
        state = reading.state
        tasks = choose_tasks(task, reading)
        said = dict.fromkeys(wish(each) or "as usual" for each in tasks)
        change = _Change(
            reading.directory,
            "set",
            task,
            refused=WEIGHTS_UNDER_PRIME_RL if is_prime_rl(state) else "",
            doing=", ".join(said),
            arguments=arguments,
        )
        _require_live(reading, change)
    return _carry_out(change, options)


def change_settings(settings: Sequence[str], run: str | None, options: CommandOptions) -> int:
    """Change settings, given as `name=value`. Raises `ConfigError` too."""
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
        refused = run_refusal("set", prime_rl=is_prime_rl(reading.state))
        change = _Change(directory, "set", RUN, already, refused, f"has {shown}", values)
        _require_live(reading, change)
    return _carry_out(change, options)


def _require_live(reading: RunReading, change: _Change) -> None:
    if not reading.live and not change.already:
        name = reading.directory.name
        raise UserError(f"{name} is not live ({reading.status}): nothing to {change.verb}")


def _carry_out(change: _Change, options: CommandOptions) -> int:
    if change.already:
        return _tell(change, _Result(True, change.already), options)
    try:
        return _tell(change, asyncio.run(_ask(change, options)), options)
    except ControlError as error:
        return _tell(change, _Result(False, str(error)), options)


async def _ask(change: _Change, options: CommandOptions) -> _Result:
    client, welcome = await ControlClient.open(change.run, options.actor)
    try:
        if options.dry_run:
            held = f"{welcome.holder} has the controls for itself" if welcome.exclusive else ""
            why = held or change.refused
            return _Result(not why, why or "would be asked")
        reader = JournalReader(change.run)
        try:
            after = reader.last_seq()
            command = await client.ask(
                Command(
                    change.verb,
                    change.target,
                    reason=options.reason,
                    arguments=change.arguments,
                )
            )
            if not options.wait:
                return _Result(None, "asked", command)
            async with asyncio.timeout(options.timeout_sec):
                return await _answer(change, command, reader, after)
        except TimeoutError:
            text = f"no answer within {options.timeout_sec:g} s; it stays asked"
            return _Result(False, text, command)
        finally:
            reader.close()
    finally:
        client.close()


async def _answer(change: _Change, command: str, reader: JournalReader, after: int) -> _Result:
    """Wait for what came of a command, by the journal; to stop a run, until it is over."""
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


def _tell(change: _Change, result: _Result, options: CommandOptions) -> int:
    if options.as_json:
        print_json(
            {
                "run": change.run.name,
                "verb": change.verb,
                "target": change.target,
                "doing": change.doing,
                "dry_run": options.dry_run,
                "changed": bool(result.command),
                "ok": result.ok,
                "result": result.text,
                "command": result.command or None,
            }
        )
    else:
        _say(change, result, options)
    return FAILED if result.ok is False else DONE


def _say(change: _Change, result: _Result, options: CommandOptions) -> None:
    import typer

    from tbtui.console.texts import given
    from tbtui.terminal import visible

    if options.dry_run and result.ok and not change.already:
        what = change.run.name if change.target == RUN else f"{change.target} of {change.run.name}"
        arguments = f" {given(change.arguments)}" if change.arguments else ""
        line = f"would {change.verb}{arguments}: {what} ({change.doing})"
    else:
        line = result.text
    if result.ok is False:
        say(line)
    else:
        typer.echo(visible(line))
