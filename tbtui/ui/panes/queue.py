"""The policy's queue, workers and sandboxes, the GPUs, and what the processes use."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from textual.strip import Strip

from tbtui.journal.figures import TRAINING_SPEED
from tbtui.ui.drawing.rows import Span, pair, reason, row, split_row
from tbtui.ui.drawing.text import clock_time, number, short_count, wrap
from tbtui.ui.panes.pane import MOMENT, Frame, Pane
from tbtui.ui.panes.server_rows import TABLE_WIDTH, gpu_rows, server_rows
from tbtui.ui.theme.glyphs import SETUP_MARK
from tbtui.view.forecast import amount, between, forecasts
from tbtui.view.sentences import dollars
from tbtui.view.server import PolicyLostView, PolicyView
from tbtui.view.state import RunState
from tbtui.view.waiting import new_policy
from tbtui.vocabulary import TrialPhase

_WIDEST = 66
"""A number that stands far from its name is hard to read."""
_ROOMY_WIDTH = 30
_EMPTY = "once the policy is loaded: queue, latencies, workers, sandboxes and GPUs"
_SANDBOX_UP = frozenset(
    {
        TrialPhase.MODEL,
        TrialPhase.ACTING,
        TrialPhase.PAUSED,
        TrialPhase.VERIFYING,
    }
)


class QueuePane(Pane):
    """The policy's requests, its server where it has one, and what computes."""

    EVERY = MOMENT

    def title(self, frame: Frame) -> str:
        return "queue"

    def show(self, frame: Frame) -> None:
        policy = frame.state.policy_now
        tall = (policy is not None and policy.server is not None) or bool(frame.state.gpus)
        self.set_class(tall, "-server")
        super().show(frame)

    def key(self, frame: Frame) -> Hashable:
        state = frame.state
        return (
            *(state.policy_now, state.policy_lost, state.processes, tuple(state.gpus.values())),
            *(len(state.workers), state.engine_lag_ms, int(frame.now), state.step),
            _sandboxes(state),
        )

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        state, palette = frame.state, frame.palette
        now, lost = state.policy_now, state.policy_lost
        width = min(width, _WIDEST)
        rows: list[Strip] = []
        if lost is not None:
            rows.extend(_lost(lost, frame, width))
        elif now is not None and now.server is not None:
            rows.extend(server_rows(now, now.server, frame, width))
            rows.extend(_sampling(now, frame, width))
        elif now is not None:
            working = palette.accent if now.in_flight else palette.muted
            rows.append(pair(width, palette, "policy", (now.activity, working)))
            rows.append(pair(width, palette, "in flight", (f"{now.in_flight}", palette.text)))
            rows.extend(_sampling(now, frame, width))
        rows.extend(_consumed(frame, width))
        rows.extend(_up(frame, width))
        rows.extend(gpu_rows(frame, width))
        rows.extend(_forecast(frame, width))
        rows.extend(_processes(frame, width))
        empty = [row(width, (f" {part}", palette.faint)) for part in wrap(_EMPTY, width - 2)]
        return rows or empty


def _lost(lost: PolicyLostView, frame: Frame, width: int) -> Iterator[Strip]:
    palette = frame.palette
    since: Span = (f"{clock_time(frame.now - lost.time)} ", palette.text)
    yield split_row(width, [(" ! policy lost", palette.bad)], [since])
    yield from reason(lost.reason, palette, width)
    yield row(width, ("   … ", palette.attention), (new_policy(lost, frame.now), palette.text))


def _sampling(now: PolicyView, frame: Frame, width: int) -> Iterator[Strip]:
    palette, server = frame.palette, now.server
    shown_by_kind = server is not None and (
        bool(server.latencies) or (bool(server.requests) and width >= TABLE_WIDTH)
    )
    if now.p50_sec is not None and now.p95_sec is not None and not shown_by_kind:
        yield pair(
            width,
            palette,
            "p50 · p95",
            (number(now.p50_sec), palette.text),
            (" · ", palette.faint),
            (number(now.p95_sec), palette.text),
            (" s", palette.muted),
        )
    speeds = {
        "sampling": now.tokens_per_sec(frame.now),
        "training": frame.state.latest_metric(TRAINING_SPEED),
    }
    unit = " tokens/s" if width >= _ROOMY_WIDTH else " tok/s"
    for name, speed in speeds.items():
        if speed is not None:
            yield pair(width, palette, name, (f"{speed:,.0f}", palette.text), (unit, palette.muted))
    if server is not None:
        if (share := server.cache_share) is not None:
            name = "prefix cache hits" if server.is_vllm else "prompts cached"
            yield pair(width, palette, name, (f"{share:.0%}", palette.text))
        if server.requests and width >= TABLE_WIDTH:
            yield pair(width, palette, "retries", (f"{server.retries:,}", palette.text))
        elif server.retries or server.failed:
            yield pair(
                width,
                palette,
                "retries · failed",
                (f"{server.retries:,}", palette.text),
                (" · ", palette.faint),
                (f"{server.failed:,}", palette.attention if server.failed else palette.text),
            )
    yield pair(width, palette, "completions", (f"{now.completed:,}", palette.text))


def _consumed(frame: Frame, width: int) -> Iterator[Strip]:
    """Rows of the tokens and cost of finished steps and evaluations."""
    state, palette = frame.state, frame.palette
    usd = state.totals.get("cost/total_usd")
    on_server = state.policy_now is not None and state.policy_now.server is not None
    if usd is not None:
        step = state.latest_metric("cost/step_usd") or 0.0
        yield pair(
            width,
            palette,
            "spent",
            (dollars(usd), palette.text),
            (f" · {dollars(step)} a step" if width >= _ROOMY_WIDTH else "", palette.muted),
        )
    elif state.totals and state.policy == "tinker":
        # Something has been consumed, at an unknown price.
        yield pair(width, palette, "cost", ("unknown: no prices", palette.muted))
    if not on_server:
        return
    for kind in ("prompt", "sampled", "trained"):
        if tokens := state.totals.get(f"tokens/total/{kind}"):
            yield pair(width, palette, f"{kind} tokens", (short_count(tokens), palette.text))


def _forecast(frame: Frame, width: int) -> Iterator[Strip]:
    """Rows of what the rest of the run will take, and of what a group with signal has taken; wide,
    with intervals, and of a point of pass rate."""
    state, palette = frame.state, frame.palette
    roomy = width >= _WIDEST - 2
    for each in forecasts(state, frame.now):
        if each.unit == "rollouts" and not roomy:
            continue
        limit = (state.settings.get("budget") or {}).get(each.unit)
        if limit:
            style = palette.attention if each.spent >= 0.8 * limit else palette.text
            words = f"{amount(each.unit, each.spent)} of {amount(each.unit, limit)}"
            yield pair(width, palette, "budget", (words, style))
        if each.left:
            words = each.left_between if roomy else each.left
            yield pair(width, palette, _TO_COME[each.unit], (words, palette.text))
        if each.useful_group is not None:
            words = amount(each.unit, each.useful_group)
            yield pair(width, palette, "per group with signal", (words, palette.text))
        if each.point is not None and roomy:
            words = between(each.unit, each.point)
            yield pair(width, palette, "per point of pass rate", (words, palette.text))


_TO_COME = {
    "dollars": "cost to come",
    "hours": "time left",
    "rollouts": "rollouts to come",
}


def _up(frame: Frame, width: int) -> Iterator[Strip]:
    """Rows of workers and sandboxes, with their limits."""
    state, palette = frame.state, frame.palette
    if state.workers:
        yield pair(
            width,
            palette,
            "workers",
            *_of(frame, len(state.workers), state.settings.get("n_workers")),
        )
    up, starting = _sandboxes(state)
    if not state.trials:
        return
    spans = _of(frame, up, state.settings.get("n_parallel_envs"))
    if starting:
        words = f"{starting} starting · "
        room = width - len(" sandboxes  ") - sum(len(text) for text, _ in spans)
        short = f"{starting}{SETUP_MARK} · "
        spans = [(words if len(words) <= room else short, palette.muted), *spans]
    yield pair(width, palette, "sandboxes", *spans)


def _of(frame: Frame, count: int, most: object) -> list[Span]:
    shown: list[Span] = [(f"{count}", frame.palette.text)]
    if isinstance(most, int):
        shown.append((f"/{most}", frame.palette.muted))
    return shown


def _sandboxes(state: RunState) -> tuple[int, int]:
    """Return how many sandboxes are up and how many are being created."""
    phases = [trial.phase for trial in state.live_trials()]
    return sum(phase in _SANDBOX_UP for phase in phases), phases.count(TrialPhase.SETUP)


def _processes(frame: Frame, width: int) -> Iterator[Strip]:
    state, palette = frame.state, frame.palette
    if not state.processes:
        return
    yield split_row(width, [(" process", palette.faint)], [("MB  cores ", palette.faint)])
    for process in state.processes:
        yield split_row(
            width,
            [(f" {process.role}", palette.muted)],
            [(f"{process.rss_mb:6,.0f}", palette.text), (f"  {process.cpu:5.2f} ", palette.text)],
        )
    lag: Span = (f"{state.engine_lag_ms:.0f} ms ", palette.text)
    yield split_row(width, [(" engine lag, worst", palette.muted)], [lag])
