"""Demonstrations of a run: what people type in its trials is kept, and what they accept trained."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tbtui.algorithm.costs import Tokens
from tbtui.algorithm.step import demonstration_data
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.recorded import RecordedBatch
from tbtui.engines.grpo.rollouts import TrialPlan, derive_seed
from tbtui.journal.demonstrations import (
    DEFAULT_SEC,
    DemonstratedAnswer,
    Demonstration,
    DemonstrationError,
    Demonstrations,
    commands_of,
    is_shell_block,
)
from tbtui.journal.events import DemonstrationKept, DemonstrationsTrained, Noted
from tbtui.policies.base import Datum, PolicyError, SampleRequest, SamplingParams
from tbtui.rollout.messages import Demonstrated

_WORDS_TEMPERATURE = 0.1
"""Near-greedy: what the policy would most likely think."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Style:
    """How the agent writes its answers."""

    compact: bool
    seconds: float
    """What it waits after a command."""


@dataclass(frozen=True, slots=True)
class StepDemonstrations:
    """What a step is trained on beside its rollouts."""

    data: Sequence[Datum] = ()
    ids: tuple[str, ...] = ()
    weight: float = 1.0


class DemonstrationKeeper:
    """Writes demonstrations as trials are given back, and reads those that were accepted."""

    def __init__(self, run: EngineContext) -> None:
        self._run = run
        self._files = Demonstrations(run.directory)
        self._policy = run.policy
        self._journal = run.journal
        self._heldout = {task.name for task in run.split.heldout}
        """Tasks that are never trained on."""
        self._filling: set[asyncio.Task[None]] = set()
        self._warned: set[str] = set()
        """Reasons not to train on a demonstration that are journalled already."""

    def keep(
        self, plan: TrialPlan, message: Demonstrated, prompt: tuple[int, ...], actor: str
    ) -> None:
        """Keep what was typed in a trial, if the settings want it."""
        style = _style(message)
        commands = commands_of(message.typed, style.seconds)
        agent = self._run.config.agent
        if self._run.config.demos == "off" or not commands:
            return
        if agent == "shell" and not is_shell_block(commands):
            text = (
                f"{message.trial}: no demonstration: agent=shell enters lines, and no single keys"
            )
            self._journal.append(Noted(level="warning", text=text))
            return
        kept = Demonstration(
            trial=message.trial,
            task=plan.task.name,
            turn=message.turn,
            step=plan.step,
            actor=actor,
            time=time.time(),
            messages=message.messages,
            prompt_ids=prompt,
            tokenizer=self._policy.info.tokenizer,
            answer=DemonstratedAnswer(commands=commands),
            agent=agent,
            compact=style.compact,
        )
        try:
            # On the loop: one small file at a person's key, and the end of the run can't lose it.
            self._files.write(kept)
        except DemonstrationError as error:
            self._journal.append(Noted(level="warning", text=f"a demonstration is lost: {error}"))
            return
        self._journal.append(
            DemonstrationKept(
                trial=kept.trial,
                demonstration=kept.id,
                turn=kept.turn,
                actor=actor,
                commands=len(commands),
            )
        )
        if agent == "shell":  # whose answers need no words
            return
        filling = asyncio.get_running_loop().create_task(self._fill_words(kept, plan.seed))
        self._filling.add(filling)
        filling.add_done_callback(self._filling.discard)

    async def close(self) -> None:
        """Stop asking for words."""
        for filling in self._filling:
            filling.cancel()
        await asyncio.gather(*self._filling, return_exceptions=True)

    async def _fill_words(self, kept: Demonstration, seed: int) -> None:
        """Put down what the policy itself thinks at this point, for a person to edit: words of
        its own are the least that it has to learn besides the commands."""
        request = SampleRequest(
            kept.prompt_ids,
            self._run.config.max_tokens,
            SamplingParams(_WORDS_TEMPERATURE),
            derive_seed(seed, "demonstration", kept.turn),
        )
        try:
            sample = await self._policy.sample(request)
            self._run.spending.add(
                Tokens(
                    prompt=len(kept.prompt_ids),
                    cached=sample.cached_tokens,
                    sampled=len(sample.completion_ids),
                    calls=1,
                )
            )
            said = _json_object(self._policy.renderer.answer(sample.completion_ids).text)
            words = str(said.get("analysis", "")), str(said.get("plan", ""))
            await asyncio.to_thread(self._put_words, kept.id, *words)
        except (PolicyError, DemonstrationError) as error:
            # A person writes them, then.
            _log.info("no words for demonstration %s: %s", kept.id, error)

    def _put_words(self, id: str, analysis: str, plan: str) -> None:
        """Write them into a demonstration that nobody has looked at yet."""
        now = self._files.read(id)
        if not now.reviews:
            answer = msgspec.structs.replace(now.answer, analysis=analysis, plan=plan)
            self._files.write(msgspec.structs.replace(now, answer=answer))

    async def of_step(self, step: int, recorded: RecordedBatch) -> StepDemonstrations:
        """The accepted demonstrations for this step: none unless the settings train on them.

        One that can't be read or used is left out, with a warning in the journal.

        Args:
            recorded: an interrupted run's step is trained again on those that it was trained on.
        """
        config, before = self._run.config, recorded.demonstrations
        if before is None and (config.demos != "train" or recorded.finished):
            return StepDemonstrations()
        known, problems = await asyncio.to_thread(self._files.readable)
        for problem in problems:
            self._warn_once(str(problem))
        if before is not None:
            return self._data(self._again(before, known), before.weight)
        usable = [each for each in known if each.status == "accepted" and self._fits(each)]
        if len(usable) > config.demos_per_step:
            draw = random.Random(derive_seed(config.seed, "demos", step))
            usable = draw.sample(usable, config.demos_per_step)
        return self._data(usable, config.demo_weight)

    def _data(self, chosen: Sequence[Demonstration], weight: float) -> StepDemonstrations:
        pairs = [(each.prompt_ids, self._policy.renderer.spell(each.text)) for each in chosen]
        ids = tuple(each.id for each in chosen)
        return StepDemonstrations(demonstration_data(pairs, weight), ids, weight)

    def _again(
        self, before: DemonstrationsTrained, known: Sequence[Demonstration]
    ) -> list[Demonstration]:
        by_id = {each.id: each for each in known}
        for id in before.demonstrations:
            if id not in by_id:
                self._warn_once(f"demonstration {id}: it is gone, and was trained on before")
        return [by_id[id] for id in before.demonstrations if id in by_id]

    def _fits(self, each: Demonstration) -> bool:
        info = self._policy.info
        length = len(each.prompt_ids) + len(self._policy.renderer.spell(each.text))
        if each.task in self._heldout:
            why = f"its task {each.task} is held out"
        elif each.tokenizer != info.tokenizer:
            why = "it was written with another tokenizer"
        elif length > info.context_limit:
            why = f"longer than the context of {info.context_limit}"
        else:
            return True
        self._warn_once(f"demonstration {each.id}: {why}")
        return False

    def _warn_once(self, why: str) -> None:
        if why not in self._warned:
            self._warned.add(why)
            self._journal.append(Noted(level="warning", text=f"not trained on: {why}"))


def _style(message: Demonstrated) -> _Style:
    """As the agent's last answer in the conversation has it."""
    said = next((m.content for m in reversed(message.messages) if m.role == "assistant"), "")
    compact = "\n" not in said.strip()
    match _json_object(said):
        case {"commands": [*_, {"duration": int(seconds) | float(seconds)}]} if seconds >= 0:
            return _Style(compact, float(seconds))
    return _Style(compact, DEFAULT_SEC)


def _json_object(text: str) -> dict[str, Any]:
    """The object that an answer is; empty where it can't be read."""
    try:
        found = json.loads(text[text.index("{") : text.rindex("}") + 1])
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
