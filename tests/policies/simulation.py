"""Starter trials in the simulated terminal: quick enough to judge a checkpoint in a test.

The engine trains on real trials; these only agree with them where the agent keeps to commands
that the simulated terminal knows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from tbtui.policies.base import Message, SampleRequest, SamplingParams
from tbtui.policies.local.learner import Learner
from tbtui.policies.local.renderer import (
    CONFIRM_HEADING,
    CONFIRM_QUESTION,
    ERRORS_HEADING,
    ERRORS_REQUEST,
    STATE_HEADING,
    LocalRenderer,
)
from tests.by_hand.starter.simulated_terminal import SimulatedTerminal
from tests.by_hand.starter.world import StarterTask

MAX_TURNS = 6
MAX_TOKENS = 96


@dataclass
class Trial:
    """One simulated trial; `solved` is None while it goes on."""

    task: StarterTask
    seed: int
    terminal: SimulatedTerminal
    ids: tuple[int, ...]
    answers: list[str] = field(default_factory=list)
    pending: bool = False
    solved: bool | None = None


def _observe(trial: Trial, answer: str) -> str:
    """What Terminus-2 would say to `answer`; sets `solved` when it was the confirmation."""
    try:
        said = json.loads(answer)
        keys = [command["keystrokes"] for command in said["commands"]]
        complete = said.get("task_complete", False) is True
    except (ValueError, KeyError, TypeError):
        reason = "No valid JSON found in response\nWARNINGS: - No valid JSON object found"
        return ERRORS_HEADING + reason + ERRORS_REQUEST
    for keystrokes in keys:
        trial.terminal.type(keystrokes)
    screen = trial.terminal.look()
    if complete and trial.pending:
        trial.solved = trial.terminal.tree == dict(trial.task.goal)
    asks = complete and not trial.pending
    trial.pending = complete
    return CONFIRM_HEADING + screen + CONFIRM_QUESTION if asks else screen


def simulate(
    learner: Learner,
    renderer: LocalRenderer,
    preamble: str,
    tasks: Sequence[StarterTask],
    *,
    temperature: float = 1.0,
) -> list[Trial]:
    """One trial of each task; a trial that isn't confirmed within MAX_TURNS is not solved."""
    trials = []
    for seed, task in enumerate(tasks):
        terminal = SimulatedTerminal(task.files)
        prompt = preamble + task.instruction + STATE_HEADING + terminal.look()
        trials.append(Trial(task, seed, terminal, renderer.render([Message("user", prompt)])))
    for turn in range(MAX_TURNS):
        live = [trial for trial in trials if trial.solved is None]
        if not live:
            break
        drawn = learner.sample(
            [
                SampleRequest(
                    trial.ids,
                    MAX_TOKENS,
                    SamplingParams(temperature),
                    trial.seed * MAX_TURNS + turn,
                )
                for trial in live
            ]
        )
        for trial, completion in zip(live, drawn, strict=True):
            text = renderer.answer(completion.completion_ids).text
            trial.answers.append(text)
            observation = _observe(trial, text)
            spoken = trial.ids + completion.completion_ids
            trial.ids = renderer.extend(spoken, [Message("user", observation)], 0)
    return trials
