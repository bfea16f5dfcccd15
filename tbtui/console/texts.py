"""Texts of single events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from tbtui.journal.events import AlarmRaised, Estimate, EvalFinished, RunContinued, RunStarted
from tbtui.journal.figures import HeldOut, pass_rates_in_words
from tbtui.terminal import visible
from tbtui.view.waiting import number_range


def line(head: str, text: str) -> str:
    return f"{head:<8}{visible(text)}"


def given(arguments: Mapping[str, Any]) -> str:
    """A command's arguments: `max_steps=3, eval_every=none`."""
    return ", ".join(
        f"{name}={'none' if value is None else value}" for name, value in arguments.items()
    )


def reward_text(reward: float | None) -> str:
    return "none" if reward is None else f"{reward:g}"


def end_line(status: str, reason: str) -> str:
    """The very last line, which has the reason: some read only that one."""
    return f"{status}: {visible(reason)}"


def run_lines(event: RunStarted) -> Iterator[str]:
    size = f", {event.parameters / 1e6:.2f}M parameters" if event.parameters else ""
    uses = Counter(task.split for task in event.tasks)
    yield line("run", event.run)
    yield line("policy", f"{event.policy} {event.model_name}{size}")
    yield line("trials", f"in {event.environment} ({event.environment_reason})")
    yield line(
        "tasks", f"{uses['train']} to train on, {uses['eval']} held out, from {event.tasks_dir}"
    )


def evaluated_weights(settings: Mapping[str, Any]) -> str:
    """Name what a run without steps evaluates; empty: it takes steps."""
    if settings.get("max_steps") != 0:
        return ""
    if settings.get("agent") == "oracle":
        return "the tasks' own solutions"
    if not (checkpoint := str(settings.get("checkpoint") or "")):
        return "the starting weights"
    parts = PurePath(checkpoint).parts
    if len(parts) > 3 and parts[-2] == "checkpoints":
        return f"{parts[-1]} of {parts[-3]}"
    return checkpoint


def continued_lines(event: RunContinued) -> Iterator[str]:
    where = f"step {event.step} ({event.checkpoint})" if event.checkpoint else "the start"
    yield line("resumed", f"from {where}")
    if event.replayed:
        yield line(
            "resumed", f"{number_range(event.replayed)} trained again on what was recorded of them"
        )
    if event.reused or event.requeued:
        yield line(
            "resumed",
            f"{event.reused} finished trials are used again,"
            f" {len(event.requeued)} that were under way start again",
        )


def alarm_line(event: AlarmRaised) -> str:
    led_to = {"warn": "", "pause": "; the run is paused", "halt": "; the run ends"}
    name = event.alarm.replace("_", " ")
    return line("alarm", f"{name} at step {event.step}: {event.text}{led_to[event.action]}")


def eval_line(event: EvalFinished, weights: str = "") -> str:
    """`weights`: what was evaluated, if not those after a step."""
    weights = weights or f"after step {event.step}"
    if event.scored + event.unscored == 1:
        only = HeldOut.of(event)
        return line("eval", f"{weights}: {pass_rates_in_words(only, only)}")
    if event.pass_rate is None:
        return line("eval", f"{weights}: no trial could be scored")
    kinds = " ".join(f"{kind} {rate:.2f}" for kind, rate in event.by_kind.items())
    datasets = " ".join(f"{name} {rate:.2f}" for name, rate in event.by_dataset.items())
    parts = f"{datasets} · {kinds}" if datasets else kinds
    unscored = f", {event.unscored} unscored" if event.unscored else ""
    tasks = HeldOut.of(event).coverage
    of_tasks = f" ({tasks})" if tasks else ""
    trials = "trial" + "s" * (event.scored != 1)
    at_k = "".join(
        f" · pass@{k} {estimate.value:.2f}{_interval(estimate)}"
        for k, estimate in sorted(event.pass_at.items())
        if k > 1
    )
    return line(
        "eval",
        f"{weights}: held-out pass rate {event.pass_rate:.2f}"
        f"{_interval(event.pass_at.get(1))} of {event.scored} {trials}{unscored}{of_tasks}"
        f"{at_k} · {parts}",
    )


def _interval(estimate: Estimate | None) -> str:
    return "" if estimate is None else f" ({estimate.low:.2f} to {estimate.high:.2f})"
