"""The app, `tbtui ctl`, the engine and Prime-RL's plugin refuse exactly what the table refuses."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from tbtui.ctl import changes
from tbtui.ctl.options import CommandOptions
from tbtui.ctl.reading import RunReading
from tbtui.engines.grpo.plan import task_order
from tbtui.engines.prime_rl.plugin.files import FOLDER
from tbtui.engines.prime_rl.plugin.host import HostedTrial, HostSettings, TrialHost
from tbtui.engines.trials.attempts import Attempt, Place
from tbtui.journal.commands import RUN, Command, Typed, to_arguments
from tbtui.journal.events import EVENT_TYPES, CommandDone, TrialFinished
from tbtui.journal.hold import FROZEN, PAUSED, RUNNING, Hold, typed_in
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.verbs import (
    GROUP_VERBS,
    RUN_VERBS,
    TRIAL_VERBS,
    Standing,
    already_so,
    pointless,
    refusal,
    run_already_so,
    run_refusal,
)
from tbtui.rollout.messages import (
    EnvironmentSpec,
    FromWorker,
    PauseEntered,
    PhaseEntered,
    TakenOver,
    TrialSpec,
)
from tbtui.ui.input.keys import KEYS
from tbtui.ui.panes.key_bar import keys_that_work
from tbtui.view.standing import standing
from tbtui.view.state import RunState, StepView, TrialView
from tbtui.vocabulary import CommandVerb, TrialPhase
from tests.engines.conftest import TASKS, Bench
from tests.engines.conftest import bench as bench
from tests.engines.fakes import facts
from tests.waiting import until

DONE = CommandDone.kind
GROUP = "s0001-" + next(task_order(TASKS[:6], 0)).name
ARGUMENTS: dict[CommandVerb, dict[str, Any]] = {
    "type": to_arguments([Typed("text", "ls")]),
    "relabel": {"reward": 0.5},
    "message": {"text": "look into /app"},
}


@dataclass(frozen=True, slots=True)
class Case:
    """A trial in one of the ways in which it can stand; ada asks."""

    phase: TrialPhase
    hold: Hold = RUNNING

    def standing(self, trial: str) -> Standing:
        return Standing(trial, self.phase, hold=self.hold, asker="ada")


CASES = {
    "queued": Case(TrialPhase.QUEUED),
    "setup": Case(TrialPhase.SETUP),
    "model": Case(TrialPhase.MODEL),
    "acting": Case(TrialPhase.ACTING),
    "paused": Case(TrialPhase.PAUSED, PAUSED),
    "frozen": Case(TrialPhase.PAUSED, FROZEN),
    "taken": Case(TrialPhase.PAUSED, typed_in("ada")),
    "another's": Case(TrialPhase.PAUSED, typed_in("bob")),
    "verifying": Case(TrialPhase.VERIFYING),
    "teardown": Case(TrialPhase.TEARDOWN),
    "finished": Case(TrialPhase.FINISHED),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


# The table


def test_every_verb_is_something_that_may_be_asked() -> None:
    assert {*TRIAL_VERBS, *GROUP_VERBS, *RUN_VERBS} == set(get_args(CommandVerb))
    told_by = {verb.event for verb in (*TRIAL_VERBS.values(), *GROUP_VERBS.values())}
    assert told_by <= EVENT_TYPES.keys()


@cases
def test_what_is_refused_says_why_in_one_line(case: Case) -> None:
    for verb in TRIAL_VERBS:
        for said in (refusal(verb, case.standing("t")), already_so(verb, case.standing("t"))):
            assert said == said.strip()
            assert not set(said) & set("{}\n")


WORKS = "setup model acting paused"
PHASES: dict[CommandVerb, str] = {
    **dict.fromkeys(("pause", "resume"), f"queued {WORKS}"),
    **dict.fromkeys(("freeze", "take_over", "type", "message"), WORKS),
    **dict.fromkeys(("stop", "cancel", "give_back"), f"queued {WORKS} verifying teardown"),
    **dict.fromkeys(("retry", "fork"), f"{WORKS} verifying teardown finished"),
    **dict.fromkeys(("exclude", "include"), f"queued {WORKS} verifying teardown finished"),
    **dict.fromkeys(("accept", "relabel"), "finished"),
    "refill": f"queued {WORKS} verifying teardown finished",
}
"""In which a trial may be asked for it."""
TOO_LATE = {
    "queued": "t is still queued",
    "verifying": "t is being verified",
    "teardown": "t is being torn down",
    "finished": "t is not running",
}


@pytest.mark.parametrize("verb", [*TRIAL_VERBS, *GROUP_VERBS])
def test_each_verb_has_its_phases(verb: CommandVerb) -> None:
    typing = verb in ("type", "give_back")
    for phase in TrialPhase:
        stands = Standing("t", phase, hold=typed_in("ada" * typing))
        if str(phase) in PHASES[verb].split():
            assert refusal(verb, stands) == ""
        else:
            over = verb in ("accept", "relabel")
            words = "t is not over yet" if over else TOO_LATE[str(phase)]
            assert refusal(verb, stands) == f"{words}: nothing to {verb.replace('_', ' ')}"


ENDED = {"phase": TrialPhase.FINISHED}
ANOTHERS = {"hold": typed_in("bob"), "asker": "ada"}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    # verbs, how the trial stands, what the refusal begins with
    ("exclude include relabel", ENDED | {"held_out": True}, "t is held out: it is never trained"),
    ("exclude include relabel", ENDED | {"fork": True}, "t is a fork: it is never trained on"),
    ("exclude include relabel retry", ENDED | {"successor": "u"}, "t is attempted again already,"),
    (
        "exclude include relabel retry accept refill",
        ENDED | {"step_open": False},
        "t is no part of the step that is being sampled: nothing to",
    ),
    ("relabel", ENDED | {"has_tokens": False}, "t has no sampled tokens"),
    ("fork", {"has_tokens": False}, "t has no turn to fork from"),
    ("fork", {"program": True}, "t can't be forked: its agent is a program"),
    ("freeze", {"next_typist": "ada"}, "ada types in t"),
    ("take_over type message", ANOTHERS, "bob types in t: one at a time"),
    ("resume", ANOTHERS, "bob types in t; give_back takes it from them"),
    ("take_over", {"hold": FROZEN}, "t is frozen in the middle of a turn"),
    ("type", {}, "t is not yours to type in: take it over first"),
    ("type", {"next_typist": "ada"}, "t is not yours to type in: it waits"),
    ("give_back", {}, "nobody has taken t over"),
    ("message", {}, "t is not paused: pause it"),
    ("set", {}, "set is nothing that a trial could do"),
]


@pytest.mark.parametrize(("verbs", "stands", "words"), REFUSED)
def test_what_refuses_it(verbs: str, stands: dict[str, Any], words: str) -> None:
    trial = Standing("t", **stands)
    refused = {verb for verb in TRIAL_VERBS | GROUP_VERBS if words in refusal(verb, trial)}
    assert refused == set(verbs.split()) & {*TRIAL_VERBS, *GROUP_VERBS}
    for verb in verbs.split():
        assert refusal(verb, trial).startswith(words)  # type: ignore[arg-type]


def test_who_is_not_known_may_be_the_typist() -> None:
    for typist, asker, another in (("bob", "ada", True), ("ada", "ada", False), ("bob", "", False)):
        assert Standing(next_typist=typist, asker=asker).anothers == another


def test_what_is_so_already_and_the_opposite_that_a_key_asks_for() -> None:
    so: dict[str, dict[str, Any]] = {
        "pause": {"hold": PAUSED},
        "freeze": {"hold": FROZEN},
        **dict.fromkeys(("stop", "cancel"), ENDED),
        "retry": {"successor": "u"},
        "exclude": {"excluded": True},
        "include": {"excluded": False},
        "give_back": {"next_typist": ""},
    }
    other: dict[str, dict[str, Any]] = {
        "include": {"excluded": True},
        "give_back": {"next_typist": "b"},
    }
    for verb, rule in TRIAL_VERBS.items():
        assert bool(already_so(verb, Standing("t", **so.get(verb, {})))) == (verb in so)
        assert not already_so(verb, Standing("t", **other.get(verb, {})))
        opposite = {"pause": "resume", "freeze": "resume", "exclude": "include"}.get(verb)
        assert rule.opposite == opposite
    assert not already_so("refill", Standing("t"))


def test_what_prime_rl_does_itself_is_refused_there() -> None:
    trains = {"exclude", "include", "accept", "relabel", "refill"}
    types = {"take_over", "type", "give_back", "message"}
    for verb in (*TRIAL_VERBS, *GROUP_VERBS):
        words = refusal(verb, Standing("t", prime_rl=True, hold=typed_in("ada")))
        assert ("cancel it instead" in words) == (verb in trains)
        assert ("can't be typed in" in words) == (verb in types)
        assert ("can't be forked" in words) == (verb == "fork")
    for verb in RUN_VERBS:
        assert not run_refusal(verb)
        assert bool(run_refusal(verb, prime_rl=True)) == (verb in ("accept", "set"))
    assert run_refusal("refill") == "refill needs a group"
    assert run_refusal("retry") == "retry needs a trial"


def test_a_run_is_paused_or_it_is_not() -> None:
    assert run_already_so("pause", paused=True) == "the run is paused already"
    assert run_already_so("resume", paused=False) == "the run is not paused"
    for verb in RUN_VERBS:
        assert (run_already_so(verb, paused=False) == "") == (verb != "resume")
        assert (run_already_so(verb, paused=True) == "") == (verb != "pause")


def test_stop_is_told_as_it_is() -> None:
    assert "mid-command" in TRIAL_VERBS["stop"].does


# Those who go by it


def view_of(case: Case) -> tuple[TrialView, RunState]:
    trial = TrialView("t", "t", "task", "g", 1, "train", 1, 60.0, 0.0, phase=case.phase)
    trial.hold = case.hold
    trial.completion_tokens = 1
    if case.phase is TrialPhase.FINISHED:
        trial.finished_at = 1.0
    state = RunState()
    state.trials["t"] = trial
    state.steps.append(StepView(1, 0.0))
    return trial, state


def test_a_programs_trial_cannot_be_forked() -> None:
    trial, state = view_of(Case(TrialPhase.ACTING))
    assert not pointless("fork", standing(trial, state))
    state.settings = {"agent": "opencode"}
    assert "its agent is a program" in pointless("fork", standing(trial, state))
    keys = [key for key in KEYS if key.id == "fork"]
    assert keys
    assert not keys_that_work(keys, trial, state)


@cases
@pytest.mark.parametrize("engine", ["grpo", "prime-rl"])
def test_the_app(case: Case, engine: str) -> None:
    trial, state = view_of(case)
    state.settings = {"engine": engine}
    # It can't know its own name at the run, and says `it`.
    stands = dataclasses.replace(case.standing("it"), asker="", prime_rl=engine == "prime-rl")
    assert standing(trial, state) == stands


@cases
@pytest.mark.parametrize("engine", ["grpo", "prime-rl"])
def test_ctl(case: Case, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, state = view_of(case)
    state.settings = {"engine": engine}
    asked: list[changes._Change] = []

    @contextlib.contextmanager
    def read_run(directory: RunDirectory) -> Iterator[RunReading]:
        yield RunReading(directory, None, state, 1, 1.0)  # type: ignore[arg-type]

    monkeypatch.setattr(changes, "choose_run", lambda _: RunDirectory(tmp_path))
    monkeypatch.setattr(changes, "read_run", read_run)
    monkeypatch.setattr(changes, "_carry_out", lambda change, _: asked.append(change))
    for verb in TRIAL_VERBS:
        changes.change_trial(verb, "t", None, CommandOptions(actor="ada"))
        stands = dataclasses.replace(case.standing("t"), prime_rl=engine == "prime-rl")
        assert asked[-1].refused == refusal(verb, stands)
        assert asked[-1].already == already_so(verb, stands)


@cases
async def test_the_engine(case: Case, bench: Bench) -> None:
    """One trial for each verb, and one that keeps the step from being over."""
    bench.heldout = 0
    bench.script = lambda pool, spec: True
    queued = case.phase is TrialPhase.QUEUED
    engine = bench.engine(
        batch_size=1,
        group_size=len(TRIAL_VERBS) + 1,
        n_parallel_envs=1 if queued else len(TRIAL_VERBS) + 1,
        env_starts_per_sec=0,
    )
    running = asyncio.create_task(engine.run())
    try:
        await until(lambda: len(bench.pool.started) == (1 if queued else len(TRIAL_VERBS) + 1))
        for number, verb in enumerate(TRIAL_VERBS, 2):
            trial = f"{GROUP}-{number}"
            await _bring(bench, engine.queue.submit, trial, case)
            command = Command(verb, trial, "ada", "because", ARGUMENTS.get(verb, {}))
            engine.queue.submit(command)
            done = [e for e in bench.events(CommandDone) if e.command == command.id]
            refused = "" if not done or done[0].ok else done[0].result
            if verb == "accept" and case.phase is TrialPhase.FINISHED:
                assert refused == "step 1 is not under review"  # this the engine alone knows
            else:
                assert refused == refusal(verb, case.standing(trial)), (verb, case)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _bring(bench: Bench, submit: Any, trial: str, case: Case) -> None:
    """Have a trial that is queued or running stand as the case has it."""

    def says(message: FromWorker) -> None:
        bench.runner.on_message(1, message)

    match case.phase:
        case TrialPhase.QUEUED:
            return
        case TrialPhase.FINISHED:
            bench.pool.end(next(s for s in bench.pool.started if s.trial == trial), facts(0.0))
            await until(lambda: trial in {e.trial for e in bench.events(TrialFinished)})
            return
        case phase:
            says(PhaseEntered(trial, phase))
    if case.hold.typist:
        submit(Command("take_over", trial, case.hold.typist))
    if case.hold.paused:
        says(PauseEntered(trial, frozen=case.hold.frozen))
    if case.hold.typist:
        says(TakenOver(trial))


@pytest.mark.parametrize("case", [c for c in CASES.values() if not c.hold.typist], ids=str)
async def test_prime_rls_plugin(case: Case, tmp_path: Path) -> None:
    if case.phase is TrialPhase.FINISHED:
        return  # it answers for trials that it runs
    host = TrialHost(HostSettings(tmp_path, 1, 1))
    for verb in [*TRIAL_VERBS, *GROUP_VERBS]:
        spec = TrialSpec(verb, tmp_path, tmp_path, EnvironmentSpec(None, None), "m", 1, 1.0, 1, 1)
        place = Place(HostedTrial(spec, "task", "train", None))  # type: ignore[arg-type]
        attempt = Attempt(verb, 0, None)  # type: ignore[arg-type]
        host._attempts.fill(place, attempt)
        host._logs.open(verb)
        if case.phase is not TrialPhase.QUEUED:
            attempt.slot = await host._admission.enter()
            host.on_message(1, PhaseEntered(verb, case.phase))
        if case.hold.paused:
            host.on_message(1, PauseEntered(verb, frozen=case.hold.frozen))
        host._obey([Command(verb, verb, "ada")])
        log = (tmp_path / FOLDER / f"{verb}.jsonl").read_text().splitlines()
        done = [e for e in (json.loads(line)["event"] for line in log) if e["kind"] == DONE]
        refused = "" if not done or done[0]["ok"] else done[0]["result"]
        stands = dataclasses.replace(case.standing(verb), prime_rl=True)
        assert refused == refusal(verb, stands), (verb, case)
        if attempt.slot is not None:
            attempt.slot.leave()


async def test_a_whole_run(bench: Bench) -> None:
    bench.script = lambda pool, spec: True
    engine = bench.engine()
    running = asyncio.create_task(engine.run())
    await until(lambda: bench.pool.started)
    for verb in (*TRIAL_VERBS, *GROUP_VERBS):
        if verb not in ("accept", "stop"):
            engine.queue.submit(Command(verb, RUN, "ada"))
            done = bench.events(CommandDone)[-1]
            assert done.ok == (not run_refusal(verb))
            assert done.ok or done.result == run_refusal(verb)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
