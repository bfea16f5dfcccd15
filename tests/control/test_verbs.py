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
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.verbs import (
    GROUP_VERBS,
    RUN_VERBS,
    TRIAL_VERBS,
    Standing,
    already_so,
    refusal,
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
from tbtui.ui.command_rules import why_not
from tbtui.view.state import RunState, StepView, TrialView
from tbtui.vocabulary import CommandVerb, TrialPhase
from tests.engines.conftest import TASKS, Bench, until
from tests.engines.conftest import bench as bench
from tests.engines.fakes import facts

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
    paused: bool = False
    frozen: bool = False
    typist: str = ""

    def standing(self, trial: str) -> Standing:
        return Standing(
            trial,
            self.phase,
            paused=self.paused,
            frozen=self.frozen,
            typist=self.typist,
            taken=bool(self.typist),
            asker="ada",
        )


CASES = {
    "queued": Case(TrialPhase.QUEUED),
    "setup": Case(TrialPhase.SETUP),
    "model": Case(TrialPhase.MODEL),
    "acting": Case(TrialPhase.ACTING),
    "paused": Case(TrialPhase.PAUSED, paused=True),
    "frozen": Case(TrialPhase.PAUSED, paused=True, frozen=True),
    "taken": Case(TrialPhase.PAUSED, paused=True, typist="ada"),
    "another's": Case(TrialPhase.PAUSED, paused=True, typist="bob"),
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


def test_a_held_out_trial_and_one_whose_step_is_over_are_left_as_they_are() -> None:
    ended = Standing("t", TrialPhase.FINISHED)
    for verb in ("exclude", "include", "relabel"):
        held_out = dataclasses.replace(ended, held_out=True)
        assert refusal(verb, held_out) == "t is held out: it is never trained on"
        over = dataclasses.replace(ended, step_open=False)
        assert refusal(verb, over).startswith("t is no part of the step that is being sampled")


def test_stop_is_told_as_it_is() -> None:
    assert "mid-command" in TRIAL_VERBS["stop"].does


# Those who go by it


def view_of(case: Case) -> tuple[TrialView, RunState]:
    trial = TrialView("t", "t", "task", "g", 1, "train", 1, 60.0, 0.0, phase=case.phase)
    trial.paused, trial.frozen, trial.typist = case.paused, case.frozen, case.typist
    trial.completion_tokens = 1
    if case.phase is TrialPhase.FINISHED:
        trial.finished_at = 1.0
    state = RunState()
    state.trials["t"] = trial
    state.steps.append(StepView(1, 0.0))
    return trial, state


@cases
@pytest.mark.parametrize("engine", ["grpo", "prime-rl"])
def test_the_app(case: Case, engine: str) -> None:
    trial, state = view_of(case)
    state.settings = {"engine": engine}
    for verb in TRIAL_VERBS:
        # It asks whether to thaw, can't know its own name at the run, and says `it`.
        stands = dataclasses.replace(
            case.standing("it"),
            frozen=case.frozen and verb != "take_over",
            asker="",
            prime_rl=engine == "prime-rl",
        )
        assert why_not(verb, trial, state) == already_so(verb, stands) or refusal(verb, stands)


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
            await _bring(bench, engine.submit, trial, case)
            command = Command(verb, trial, "ada", "because", ARGUMENTS.get(verb, {}))
            engine.submit(command)
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
    if case.typist:
        submit(Command("take_over", trial, case.typist))
    if case.paused:
        says(PauseEntered(trial, frozen=case.frozen))
    if case.typist:
        says(TakenOver(trial))


@pytest.mark.parametrize("case", [c for c in CASES.values() if not c.typist], ids=str)
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
        if case.paused:
            host.on_message(1, PauseEntered(verb, frozen=case.frozen))
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
            engine.submit(Command(verb, RUN, "ada"))
            done = bench.events(CommandDone)[-1]
            assert done.ok == (not run_refusal(verb))
            assert done.ok or done.result == run_refusal(verb)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
