"""Lines for a person: of single events, of changes of the policy's server and of GPUs, and of a
step under review with how to answer it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from tbtui.invocation import to_type
from tbtui.journal.events import (
    Entry,
    Estimate,
    EvalFinished,
    GpusMeasured,
    GroupUnderReview,
    PolicyLost,
    PolicyMeasured,
    ReviewChanged,
    ReviewClosed,
    ReviewOpened,
    RunContinued,
    RunStarted,
    SettingsChanged,
)
from tbtui.server_status import ServerStatus
from tbtui.terminal import visible
from tbtui.view.sentences import HeldOut, pass_rates_in_words, reward_text
from tbtui.view.waiting import duration, number_range


def line(head: str, text: str) -> str:
    return f"{head:<8}{visible(text)}"


def given(arguments: Mapping[str, Any]) -> str:
    """A command's arguments: `max_steps=3, eval_every=none`."""
    return ", ".join(
        f"{name}={'none' if value is None else value}" for name, value in arguments.items()
    )


def end_line(status: str, reason: str) -> str:
    """The very last line, which has the reason: some read only that one."""
    return f"{status}: {visible(reason)}"


def run_lines(event: RunStarted) -> Iterator[str]:
    size = f", {event.parameters / 1e6:.2f}M parameters" if event.parameters else ""
    uses = Counter(task.split for task in event.tasks)
    yield line("run", event.run)
    yield line("policy", f"{event.policy} {event.model_name}{size}")
    yield line("trials", f"in {event.environment} ({event.environment_reason})")
    used = f"{uses['train']} to train on, {uses['eval']} held out"
    if event.settings.get("probe"):
        used = f"{uses['train']} to try"
    yield line("tasks", f"{used}, from {event.tasks_dir}")


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


def eval_line(event: EvalFinished, weights: str = "") -> str:
    """`weights`: what was evaluated, if not those after a step."""
    weights = weights or f"after step {event.step}"
    if event.scored + event.unscored == 1:
        only = HeldOut.of(event)
        return line("eval", f"{weights}: {pass_rates_in_words(only, only)}")
    if event.pass_rate is None:
        return line("eval", f"{weights}: no trial could be scored")
    kinds = _rates_of_parts(event.by_kind, event.trials_by_kind)
    datasets = _rates_of_parts(event.by_dataset, event.trials_by_dataset)
    parts = f"{datasets} · {kinds}" if datasets else kinds
    unscored = f", {event.unscored} unscored" if event.unscored else ""
    held_out = HeldOut.of(event)
    tasks = held_out.coverage
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
        f"{held_out.as_harbor_counts}{at_k} · {parts}",
    )


def _rates_of_parts(rates: Mapping[str, float], trials: Mapping[str, int]) -> str:
    """`copy 0.50 move 0.25 (n 4 each)`, or `copy 0.50 (n 4) move 0.25 (n 3)`."""
    counts = {trials.get(name) for name in rates}
    alike = len(counts) == 1
    words = [
        f"{name} {rate:.2f}"
        + (f" (n {trials[name]})" if name in trials and not (alike and len(rates) > 1) else "")
        for name, rate in rates.items()
    ]
    each = f" (n {counts.pop()} each)" if alike and len(rates) > 1 and None not in counts else ""
    return " ".join(words) + each


def _interval(estimate: Estimate | None) -> str:
    return "" if estimate is None else f" ({estimate.low:.2f} to {estimate.high:.2f})"


# A step under review

MOST_TRIALS = 8
"""Trials that are listed; the others are counted."""


class ReviewLines:
    """Fold every event of the journal in."""

    def __init__(self) -> None:
        self._run = ""
        self._settings: Mapping[str, Any] = {}
        self._undecided: dict[int, int] = {}
        """Open review's step -> trials without a decision."""

    def lines(self, entry: Entry) -> Iterator[str]:
        """Lines that this event adds."""
        match entry.event:
            case RunStarted(run=run, settings=settings):
                self._run, self._settings = run, settings
            case RunContinued(settings=settings):
                self._settings = settings
                self._undecided.clear()
            case SettingsChanged(settings=settings):
                self._settings = {**self._settings, **settings}
            case ReviewOpened():
                self._undecided[entry.event.step] = len(entry.event.undecided)
                yield from self._opened(entry.event)
            case ReviewChanged(step=step, undecided=undecided):
                before, left = self._undecided.get(step), len(undecided)
                self._undecided[step] = left
                if before is not None and before != left:
                    yield f"step {step}: {_trials(left)} undecided"
            case ReviewClosed():
                self._undecided.pop(entry.event.step, None)
                yield _closed(entry.event)
            case _:
                pass

    def _opened(self, event: ReviewOpened) -> Iterator[str]:
        scored = sum(len(group.trials) for group in event.groups)
        ends = ""
        if event.timeout_sec is not None:
            left_out = self._settings.get("at_review_timeout") != "accept"
            then = "undecided suspects are excluded" if left_out else "it goes on"
            ends = f"; after {duration(event.timeout_sec)} {then}"
        yield (
            f"step {event.step} waits for a review before it is trained:"
            f" {len(event.undecided)} of {_trials(scored)} undecided{ends}"
        )
        found = [text for group in event.groups for text in _suspects(group, event.undecided)]
        yield from found[:MOST_TRIALS]
        if len(found) > MOST_TRIALS:
            yield f"and {_trials(len(found) - MOST_TRIALS)} more"
        look = to_type("attach", self._run)
        yield f"look: {look}, or {to_type('ctl', 'group', 'list', '--run', self._run)}"
        yield f"go on: {to_type('ctl', 'run', 'accept', self._run)}"


def _suspects(group: GroupUnderReview, undecided: tuple[str, ...]) -> Iterator[str]:
    for trial, suspicions in group.suspects.items():
        if trial in undecided:
            score = group.trials.get(trial)
            reward = reward_text(score.reward if score is not None else None)
            why = "; ".join(f"{s.suspect.words}: {s.why}" for s in suspicions)
            yield f"{trial}, reward {reward}, {why}"


def _closed(event: ReviewClosed) -> str:
    how = {
        "accepted": f"accepted by {event.actor}",
        "rules": "decided by rules",
        "timeout": "no decision in time",
    }[event.how]
    return f"step {event.step} goes on: {how}" + (f" ({event.reason})" if event.reason else "")


def _trials(count: int) -> str:
    return f"{count} trial" + "s" * (count != 1)


WORTH_TELLING_SEC = 3.0
"""A pause that is over before gets no line."""


class Preempted:
    """Counts the requests that a full KV cache has put back: a line at 1, 2, 4, ... of them."""

    def __init__(self) -> None:
        self._before: int | None = None
        """When the run was first seen: others may have used the server."""
        self._next = 1

    def lines(self, preemptions: int | None) -> Iterator[str]:
        """`preemptions`: since the server's start."""
        if preemptions is None:
            return
        if self._before is None or preemptions < self._before:
            self._before, self._next = preemptions, 1
        count = preemptions - self._before
        if count >= self._next:
            self._next = count * 2
            requests = "1 request" if count == 1 else f"{count:,} requests"
            yield f"its KV cache is full: {requests} preempted so far, to be computed again"


class ServerLines:
    """Fold every event of the journal in: one of any other kind shows that time has passed."""

    def __init__(self) -> None:
        self._now: ServerStatus | None = None
        self._last: ServerStatus | None = None
        """As it was in the last line."""
        self._preempted = Preempted()

    def lines(self, entry: Entry) -> Iterator[str]:
        """Lines due now: `paused: no capacity (pool full), for 3s so far`."""
        if isinstance(entry.event, PolicyMeasured) and entry.event.server is not None:
            yield from self._preempted.lines(entry.event.server.preemptions)
        match entry.event:
            case PolicyMeasured(server=None) | PolicyLost() | RunContinued():
                self._now = self._last = None
            case PolicyMeasured(server=measured) if measured is not None:
                self._now = measured
            case _:
                pass
        now, last = self._now, self._last
        if now is None:
            return
        reason = f" ({now.reason})" if now.reason else ""
        if now.held_up:
            lasted = entry.time - now.since
            if lasted >= WORTH_TELLING_SEC and (last is None or last.state != now.state):
                self._last = now
                yield f"{now.words}{reason}, for {duration(lasted)} so far"
        elif last is not None and last.held_up:
            self._last = now
            yield f"{now.words}{reason} after {duration(now.since - last.since)}"
        elif now.state == "unknown" and reason and (last is None or last.reason != now.reason):
            self._last = now
            yield f"{now.words}{reason}"


class GpuLines:
    """Fold every event of the journal in."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}
        """Machine -> what was said of it last."""

    def lines(self, entry: Entry) -> Iterator[str]:
        """Lines due now: `node-1: 2 x NVIDIA H100 80GB HBM3`, `node-2: Connection refused`. Each
        machine has one when it is seen first, and when that has changed."""
        match entry.event:
            case RunContinued():
                self._last.clear()
            case GpusMeasured() as measured:
                said = _said(measured)
                if self._last.get(measured.host) != said:
                    self._last[measured.host] = said
                    yield f"{measured.host}: {said}"
            case _:
                pass


def _said(measured: GpusMeasured) -> str:
    if measured.unreachable:
        return f"no GPUs to be seen ({measured.unreachable})"
    kinds = Counter(gpu.name for gpu in measured.gpus if not gpu.problem)
    parts = [f"{count} x {name}" for name, count in kinds.items()]
    parts += [f"GPU {gpu.index}: {gpu.problem}" for gpu in measured.gpus if gpu.problem]
    return ", ".join(parts) or "no GPUs"
