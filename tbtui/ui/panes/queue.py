"""The policy's queue, the workers, and what the processes use."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from textual.strip import Strip

from tbtui.ui.draw import Span, row, split_row
from tbtui.ui.glyphs import server_glyph
from tbtui.ui.pane import Frame, Pane
from tbtui.ui.text import clock_time, number, short_count, wrap
from tbtui.ui.theme import Palette
from tbtui.view.costs import dollars
from tbtui.view.server import PolicyLostView, PolicyView, RequestsView, ServerView
from tbtui.view.waiting import duration, new_policy

_TABLE_WIDTH = 60
"""From here on, requests are a table."""
_WIDEST = 66
"""A number that stands far from its name is hard to read."""
_REASON_ROWS = 3
_SHORT_KINDS = {"forward_backward": "fwd_bwd"}
_NAMES_WIDTH = 30
"""Below this, long names of requests are shortened."""


class QueuePane(Pane):
    """What the policy has to do, and how its server stands where it is on one."""

    def title(self, frame: Frame) -> str:
        return "queue"

    def show(self, frame: Frame) -> None:
        policy = frame.state.policy_now
        self.set_class(policy is not None and policy.server is not None, "-server")
        super().show(frame)

    def key(self, frame: Frame) -> Hashable:
        state = frame.state
        return (
            *(state.policy_now, state.policy_lost, state.processes),
            *(len(state.workers), state.engine_lag_ms, int(frame.now), state.step),
        )

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        state, palette = frame.state, frame.palette
        now, lost = state.policy_now, state.policy_lost
        width = min(width, _WIDEST)
        if now is None and not state.processes and lost is None:
            return [row(width, (" when the policy is loaded", palette.faint))]
        rows: list[Strip] = []
        if lost is not None:
            rows.extend(_lost(lost, frame, width))
        elif now is not None and now.server is not None:
            rows.extend(_server(now.server, frame, width))
            rows.extend(_requests(now.server, frame, width))
            rows.extend(_sampling(now, frame, width))
        elif now is not None:
            working = palette.accent if now.in_flight else palette.muted
            rows.append(_pair(width, palette, "policy", (now.activity, working)))
            rows.append(_pair(width, palette, "in flight", (f"{now.in_flight}", palette.text)))
            rows.extend(_sampling(now, frame, width))
        rows.extend(_consumed(frame, width))
        rows.extend(_processes(frame, width))
        return rows


def _pair(width: int, palette: Palette, name: str, *value: Span) -> Strip:
    return split_row(width, [(f" {name}", palette.muted)], [*value, (" ", None)])


def _lost(lost: PolicyLostView, frame: Frame, width: int) -> Iterator[Strip]:
    palette = frame.palette
    since: Span = (f"{clock_time(frame.now - lost.time)} ", palette.text)
    yield split_row(width, [(" ! policy lost", palette.bad)], [since])
    yield from _wrapped(lost.reason, palette, width)
    yield row(width, ("   … ", palette.attention), (new_policy(lost, frame.now), palette.text))


def _server(server: ServerView, frame: Frame, width: int) -> Iterator[Strip]:
    """Its state and since when, and what it says of it."""
    palette = frame.palette
    glyph = server_glyph(server, palette)
    since: list[Span] = []
    if server.state != "unknown":
        since = [(f"{_age(server.since, frame.now)} ", palette.text)]
    yield split_row(width, [(f" {glyph.char} {server.words}", glyph.style)], since)
    yield from _wrapped(server.reason, palette, width)


def _requests(server: ServerView, frame: Frame, width: int) -> Iterator[Strip]:
    """In flight by kind, with the age of the oldest."""
    palette = frame.palette
    if width >= _TABLE_WIDTH:
        yield from _table(server, frame, width)
        return
    if not server.in_flight:
        yield _pair(width, palette, "in flight", ("0", palette.text))
        return
    yield split_row(width, [(" in flight", palette.faint)], [("oldest ", palette.faint)])
    for each in server.in_flight:
        name = each.kind if width >= _NAMES_WIDTH else _SHORT_KINDS.get(each.kind, each.kind)
        yield split_row(
            width,
            [(f" {each.in_flight:3,} ", palette.text), (name, palette.muted)],
            [(f"{_oldest(each, frame.now)} ", palette.text)],
        )


def _table(server: ServerView, frame: Frame, width: int) -> Iterator[Strip]:
    palette = frame.palette
    heads = f" {'requests':<17}{'in flight':>9}{'oldest':>8}{'done':>8}{'failed':>8}"
    yield row(width, (f"{heads}{'p50':>5}{'p95':>6} s", palette.faint))
    for each in server.requests:
        failed = palette.attention if each.failed else palette.muted
        yield row(
            width,
            (f" {each.kind:<17}", palette.muted),
            (f"{each.in_flight:9,}", palette.text),
            (f"{_oldest(each, frame.now):>8}", palette.text),
            (f"{each.completed:8,}", palette.text),
            (f"{each.failed:8,}", failed),
            (f"{_seconds(each.p50_sec):>5}{_seconds(each.p95_sec):>6}", palette.text),
        )


def _sampling(now: PolicyView, frame: Frame, width: int) -> Iterator[Strip]:
    palette, server = frame.palette, now.server
    told_by_kind = server is not None and width >= _TABLE_WIDTH
    if now.p50_sec is not None and now.p95_sec is not None and not told_by_kind:
        yield _pair(
            width,
            palette,
            "p50 · p95",
            (number(now.p50_sec), palette.text),
            (" · ", palette.faint),
            (number(now.p95_sec), palette.text),
            (" s", palette.muted),
        )
    if (tokens := now.tokens_per_sec(frame.now)) is not None:
        yield _pair(
            width, palette, "tokens", (f"{tokens:,.0f}", palette.text), ("/s", palette.muted)
        )
    if server is not None:
        if (share := server.cache_share) is not None:
            yield _pair(width, palette, "prompts cached", (f"{share:.0%}", palette.text))
        if told_by_kind:
            yield _pair(width, palette, "retries", (f"{server.retries:,}", palette.text))
        elif server.retries or server.failed:
            yield _pair(
                width,
                palette,
                "retries · failed",
                (f"{server.retries:,}", palette.text),
                (" · ", palette.faint),
                (f"{server.failed:,}", palette.attention if server.failed else palette.text),
            )
    yield _pair(width, palette, "completions", (f"{now.completed:,}", palette.text))


def _consumed(frame: Frame, width: int) -> Iterator[Strip]:
    """Tokens and money of the finished steps and evaluations: where a server may be paid."""
    state, palette = frame.state, frame.palette
    usd = state.latest_metric("cost/total_usd")
    on_server = state.policy_now is not None and state.policy_now.server is not None
    if usd is not None:
        step = state.latest_metric("cost/step_usd") or 0.0
        yield _pair(
            width,
            palette,
            "spent",
            (dollars(usd), palette.text),
            (f" · {dollars(step)} a step" if width >= _NAMES_WIDTH else "", palette.muted),
        )
    if not on_server:
        return
    for kind in ("prompt", "sampled", "trained"):
        if tokens := state.latest_metric(f"tokens/total/{kind}"):
            yield _pair(width, palette, f"{kind} tokens", (short_count(tokens), palette.text))


def _processes(frame: Frame, width: int) -> Iterator[Strip]:
    state, palette = frame.state, frame.palette
    if state.workers:
        yield _pair(width, palette, "workers", (f"{len(state.workers)}", palette.text))
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


def _wrapped(text: str, palette: Palette, width: int) -> list[Strip]:
    parts = list(wrap(" ".join(text.split()), width - 4))
    if len(parts) > _REASON_ROWS:
        parts = [*parts[: _REASON_ROWS - 1], " ".join(parts[_REASON_ROWS - 1 :])]
    return [row(width, ("   ", None), (part, palette.text)) for part in parts]


def _oldest(requests: RequestsView, now: float) -> str:
    return "" if requests.oldest_at is None else clock_time(now - requests.oldest_at)


def _age(since: float, now: float) -> str:
    """Exact while somebody may be waiting for it."""
    seconds = now - since
    return clock_time(seconds) if seconds < 3600 else duration(seconds)


def _seconds(value: float | None) -> str:
    return "–" if value is None else number(value)
