"""What a Tinker server makes of everything that tbtui asks of one: by hand, with a key.

`python -m tests.by_hand.tinker_report MODEL [--base-url URL] [--renderer NAME] [--tokenizer NAME]
[--context-limit N] [--loss NAME] [--rank N]`

TINKER_API_KEY, TINKER_BASE_URL and TINKER_PROJECT_ID come from the environment or `.env`. It makes
two training clients one after the other, samples a few short completions, takes one optimiser step
on a few dozen tokens, saves one checkpoint and deletes it again: with the hosted service that
costs a few cents at most, and minutes of waiting when it is busy. Prints what worked, how long it
took and what the server lacks; never the key. Exit status 1 when something failed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import numpy as np
from dotenv import load_dotenv

from tbtui.policies.base import (
    MODEL_ITSELF,
    Datum,
    LossName,
    LossSettings,
    Message,
    OptimSettings,
    PolicyError,
    Sample,
    SampleRequest,
)
from tbtui.policies.tinker.errors import without_key
from tbtui.policies.tinker.policy import TinkerPolicy
from tbtui.policies.tinker.training_run import TinkerSettings

PROMPT = (Message("user", "Create the file hello.txt with the line: hello"),)
MAX_TOKENS = 24
LEARNING_RATE = 1e-4
GRAD_CLIP = 0.3
SEED = 1

Say = Callable[[str], None]


class FailedError(Exception):
    """Something that the rest depends on failed; it has been reported."""


@dataclass(slots=True)
class Report:
    """Says how each thing went, as it happens."""

    say: Say
    failed: list[str] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    async def part[T](
        self, name: str, work: Awaitable[T], told: Callable[[T], str] = lambda _: ""
    ) -> T:
        """The result of `work`. Raises `FailedError` when it fails."""
        began = time.monotonic()
        try:
            result = await work
        except PolicyError as error:
            self.line("FAILED", name, began, str(error))
            self.failed.append(name)
            raise FailedError from error
        self.line("ok", name, began, told(result))
        return result

    async def refused(self, name: str, work: Awaitable[object]) -> None:
        """`work` has to fail, with a line for a person."""
        began = time.monotonic()
        try:
            await work
        except PolicyError as error:
            self.line("ok", name, began, f"refused as it should be: {error}")
            return
        self.line("FAILED", name, began, "it went through")
        self.failed.append(name)

    def line(self, verdict: str, name: str, began: float, told: str) -> None:
        seconds = time.monotonic() - began
        self.say(f"{verdict:6}  {name:30} {seconds:7.1f} s  {without_key(told)}".rstrip())

    def lack(self, what: str) -> None:
        if what not in self.lacks:
            self.lacks.append(what)

    def finish(self) -> None:
        self.say("")
        self.say("The server lacks:" if self.lacks else "The server lacks nothing that was tried.")
        for what in self.lacks:
            self.say(f"- {without_key(what)}")
        seconds = time.monotonic() - self.began
        end = f"failed: {', '.join(self.failed)}" if self.failed else "everything worked"
        self.say(f"{end}; {seconds:.0f} s in all")


async def examine(settings: TinkerSettings, directory: Path, say: Say) -> bool:
    """Whether everything worked. `directory` gets the SDK's log and the checkpoint's file."""
    report = Report(say)
    versions = {name: importlib.metadata.version(name) for name in ("tbtui", "tinker")}
    say(f"{settings.model_name} · " + " · ".join(f"{n} {v}" for n, v in versions.items()))
    checkpoint = directory / "checkpoint"
    with contextlib.suppress(FailedError):
        async with _policy(report, settings, directory) as policy:
            await _train(report, policy, settings.loss)
            await report.part("save", policy.save(checkpoint))
        async with _policy(report, settings, directory) as policy:
            await report.part("resume", policy.load(checkpoint))
            await _sample(report, policy, "sample after resuming")
            await report.part("delete", policy.forget(checkpoint))
            await report.refused("resume what is deleted", policy.load(checkpoint))
    report.finish()
    return not report.failed


@contextlib.asynccontextmanager
async def _policy(
    report: Report, settings: TinkerSettings, directory: Path
) -> AsyncIterator[TinkerPolicy]:
    with (directory / "policy.log").open("ab") as log:
        policy = TinkerPolicy(settings, log)
        try:
            await report.part("start", policy.start(), lambda _: _described(policy))
            for note in policy.info.notes:
                report.lack(note)
            yield policy
        finally:
            await report.part("close", policy.close())


def _described(policy: TinkerPolicy) -> str:
    info = policy.info
    return f"context of {info.context_limit} tokens"


async def _train(report: Report, policy: TinkerPolicy, loss: LossName) -> None:
    drawn = await _sample(report, policy, "sample")
    again = await _sample(report, policy, "sample, same seed")
    if again.completion_ids != drawn.completion_ids:
        report.lack("the same seed draws other tokens: runs can't be repeated")
    if drawn.cached_tokens is None:
        report.lack("how many prompt tokens were in its cache")
    data = (_datum(policy.renderer.render(PROMPT), drawn),)
    settings = LossSettings(loss, clip_low=0.2, clip_high=0.2)
    gradient = await report.part(
        f"gradient, {loss}",
        policy.accumulate(data, settings),
        lambda result: f"loss {result.loss:.4g}",
    )
    apart = float(np.abs(gradient.logprobs[0] - drawn.logprobs).max())
    report.say(f"        sampler and trainer differ by {apart:.2g} nats at most")
    clip = GRAD_CLIP if "grad_clip" in policy.info.honours else 0.0
    step = await report.part(
        "optimiser step", policy.apply(OptimSettings(LEARNING_RATE, grad_clip=clip))
    )
    if step.grad_norm is None:
        report.lack("the gradient's norm")
    await report.part("publish", policy.publish(), lambda version: f"version {version}")
    await _sample(report, policy, "sample what was trained")
    await report.part("reference log-probs", policy.score(data, "reference"))


async def _sample(report: Report, policy: TinkerPolicy, name: str) -> Sample:
    request = SampleRequest(policy.renderer.render(PROMPT), MAX_TOKENS, MODEL_ITSELF, SEED)
    return await report.part(
        name,
        policy.sample(request),
        lambda drawn: (
            f"{len(drawn.completion_ids)} tokens, {drawn.stop_reason},"
            f" version {drawn.weights_version}"
        ),
    )


def _datum(prompt: tuple[int, ...], drawn: Sample) -> Datum:
    tokens = np.array((*prompt, *drawn.completion_ids), np.int32)
    mask = np.arange(len(tokens)) >= len(prompt)
    logprobs = np.zeros(len(tokens), np.float32)
    logprobs[mask] = drawn.logprobs
    weights = (mask / mask.sum()).astype(np.float32)
    return Datum(tokens, mask, logprobs, mask.astype(np.float32), weights)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--base-url")
    parser.add_argument("--renderer", default="template")
    parser.add_argument("--tokenizer")
    parser.add_argument("--context-limit", type=int)
    parser.add_argument("--loss", choices=get_args(LossName), default="importance_sampling")
    parser.add_argument("--rank", type=int, default=32)
    given = parser.parse_args()
    load_dotenv(Path.cwd() / ".env")
    settings = TinkerSettings(
        model_name=given.model,
        base_url=given.base_url,
        lora_rank=given.rank,
        loss=given.loss,
        context_limit=given.context_limit,
        tokenizer=given.tokenizer,
        renderer=given.renderer,
        checkpoint_ttl_hours=1,  # in case that this is interrupted before it deletes it
        run_name="tbtui-report",
    )

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(prefix="tbtui-report-") as directory:
        worked = asyncio.run(examine(settings, Path(directory), say))
    return 0 if worked else 1


if __name__ == "__main__":
    sys.exit(main())
