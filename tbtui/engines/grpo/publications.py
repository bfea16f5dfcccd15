"""Publishes the trained weights to the sampler, and makes sure that they have arrived.

Where sampler and trainer are two programs (`PolicyInfo.sampler_tolerance`), a sentinel looks after
every publication: see `algorithm/sentinel.py`. It costs one completion of a few tokens and one
forward pass, and what it draws is no part of training. It draws from the model's own distribution,
which is the trainer's, whatever the run's trials are drawn with.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tbtui.algorithm.sentinel import Probe, judge
from tbtui.algorithm.step import Datum
from tbtui.config import AlarmAction
from tbtui.engines.grpo.outcome_policy import alarm_of
from tbtui.engines.grpo.recorded import StartingPoint
from tbtui.journal.events import AlarmRaised, Noted, RunPhaseChanged
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import (
    MODEL_ITSELF,
    Message,
    Policy,
    PolicyError,
    PolicyLostError,
    Sample,
    SampleRequest,
)
from tbtui.vocabulary import PUBLISHING, RunPhase

_PROMPT = Message("user", "List the files here, count their lines, and say which is the longest.")
_TOKENS = 16
_LIMIT_SEC = 300.0
"""A first request may compile something."""


@dataclass(frozen=True, slots=True)
class Published:
    """What the sentinel has found of a version; nothing where there is no sentinel."""

    version: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    alarms: tuple[AlarmRaised, ...] = ()


class Publications:
    """The versions of the weights that were published, and the sentinel that looks after each."""

    def __init__(
        self,
        policy: Policy,
        journal: JournalWriter,
        start: StartingPoint,
        actions: Mapping[str, AlarmAction],
    ) -> None:
        """`actions`: alarm -> what it leads to, those alone that the settings name."""
        self._policy = policy
        self._journal = journal
        self._actions = actions
        self.version = start.weights_version
        """That was published last."""
        self._steps = {self.version: start.step, **start.published}
        """Version -> the last step that published it."""
        self._before: Probe | None = None

    def age(self, version: int, step: int) -> int:
        """Steps between the weights of a version and those that step `step` trains."""
        return step - 1 - self._steps.get(version, 0)

    async def publish(self, step: int) -> Published:
        """Publish what step `step` has trained. Raises `PolicyError`.

        A step without a signal has changed no weights: there is nothing to compare.
        """
        # The step counts once it is published.
        event = RunPhaseChanged(phase=RunPhase.TRAINING, step=step - 1, detail=PUBLISHING)
        self._journal.append(event)
        before, self.version = self.version, await self._policy.publish()
        self._steps[self.version] = step
        return Published(self.version) if self.version == before else await self.look(step)

    async def look(self, step: int) -> Published:
        """Compare sampler and trainer on the probe: after a publication, and once before the first
        step, for what the policy published as it started or loaded a checkpoint.

        A probe that can't be drawn says nothing of the weights: the journal notes it.

        Raises:
            PolicyLostError: the policy is gone.
        """
        tolerance = self._policy.info.sampler_tolerance
        if tolerance is None:
            return Published(self.version)
        started = time.monotonic()
        try:
            async with asyncio.timeout(_LIMIT_SEC):
                probe = await self._probe()
        except PolicyLostError:
            raise
        except (PolicyError, TimeoutError) as error:
            why = str(error) or f"no answer within {_LIMIT_SEC:g} s"
            text = f"version {self.version} was not compared with the sampler's: {why}"
            self._journal.append(Noted(level="warning", text=text))
            return Published(self.version)
        verdict = judge(probe, self._before, tolerance, step)
        if verdict.compared:
            self._before = probe
        metrics = {"time/sentinel": time.monotonic() - started}
        for figure in ("gap", "sampler_move", "trainer_move"):
            if figure in verdict.numbers:
                metrics[f"optim/sentinel_{figure}"] = verdict.numbers[figure]
        alarm = alarm_of(verdict.finding, self._actions) if verdict.finding else None
        return Published(self.version, metrics, (alarm,) if alarm else ())

    async def _probe(self) -> Probe:
        prompt = self._policy.renderer.render([_PROMPT])
        drawn = await self._policy.sample(SampleRequest(prompt, _TOKENS, MODEL_ITSELF, 0))
        (trained,) = await self._policy.score([_datum(prompt, drawn)], "trained")
        return Probe(self.version, drawn.completion_ids, drawn.logprobs, trained)


def _datum(prompt: tuple[int, ...], drawn: Sample) -> Datum:
    tokens = np.array([*prompt, *drawn.completion_ids], np.int32)
    mask = np.arange(len(tokens)) >= len(prompt)
    logprobs = np.zeros(len(tokens), np.float32)
    logprobs[mask] = drawn.logprobs
    return Datum(tokens, mask, logprobs, np.zeros_like(logprobs), np.ones_like(logprobs))
