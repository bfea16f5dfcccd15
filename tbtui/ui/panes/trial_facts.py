"""One trial: time, group, attempts and commands; and its verdict, with the verifier's output."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable

from rich.cells import cell_len
from rich.style import Style
from textual.strip import Strip

from tbtui.journal.events import TrialForked, TurnsValued
from tbtui.outcomes import Outcome
from tbtui.ui.drawing.charts import stacked
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import clock_time, elapsed, level, number, visible_lines, wrap
from tbtui.ui.panes.pane import Frame, Pane
from tbtui.ui.theme.glyphs import LEFT_OUT_MARK, RELABELLED_MARK, SPENDING_MARKS, trial_glyph
from tbtui.ui.theme.palette import Palette
from tbtui.view.current import active_seconds, attempts, siblings
from tbtui.view.state import Spending, TrialView
from tbtui.view.times import agent_seconds, breakdown, remaining_sec, time_left
from tbtui.view.transcript import Transcript
from tbtui.view.waiting import doing, duration, retry_wait, verb_words

_COLUMN = 20
"""Cells of one entry of the legend."""


class TrialFactsPane(Pane):
    def title(self, frame: Frame) -> str:
        return "time · group · attempts"

    def key(self, frame: Frame) -> Hashable:
        return frame.state.version, int(frame.now)

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        trial = frame.selected
        if trial is None:
            return []
        return [
            *_time(trial, frame, width),
            *_group(trial, frame, width),
            *_tree(trial, frame, width),
            *_attempts(trial, frame, width),
            *_commands(trial, frame, width),
        ]


def _time(trial: TrialView, frame: Frame, width: int) -> list[Strip]:
    palette = frame.palette
    seconds = breakdown(trial, frame.now)
    # Zero: the engine reports no budget.
    of_agent = trial.budget_sec != 0
    limit = f" of {clock_time(trial.budget_sec)} agent time" if trial.budget_sec else ""
    spent = (agent_seconds if of_agent else active_seconds)(trial, frame.now)
    left: list[Span] = [
        (f" {elapsed(spent)}", palette.strong),
        (" agent time, no limit" if trial.budget_sec is None else limit, palette.muted),
    ]
    right: list[Span] = []
    remaining = remaining_sec(trial, frame.state, frame.now)
    if remaining is not None:
        right = [(f"{time_left(remaining)} left ", palette.text)]
    return [split_row(width, left, right), *spending_rows(seconds, palette, width)]


def spending_rows(seconds: dict[Spending, float], palette: Palette, width: int) -> list[Strip]:
    """Return a stacked bar, and below it the legend, in seconds."""
    if not seconds:
        return []
    bar: list[Span] = [(" ", None)]
    for name, cells in stacked(seconds, width - 2):
        bar.append((SPENDING_MARKS[name] * cells, palette.spending[name]))
    rows = [row(width, *bar)]
    columns = max(1, (width - 1) // _COLUMN)
    entries = list(seconds.items())
    # Down, then across: the order of a trial's life reads in columns.
    height = -(-len(entries) // columns)
    for y in range(height):
        spans: list[Span] = [(" ", None)]
        for name, value in entries[y::height]:
            spans += [
                (f"{SPENDING_MARKS[name]} ", palette.spending[name]),
                (f"{name:<9}", palette.muted),
                (f"{_seconds(value):>6}  ", palette.text),
            ]
        rows.append(row(width, *spans))
    return rows


def _seconds(value: float) -> str:
    """Return seconds to a tenth; never zero for a part of the bar."""
    return f"{max(0.1, value):.1f}s" if value < 60 else duration(value)


def _tree(trial: TrialView, frame: Frame, width: int) -> list[Strip]:
    """The trunk that the trial forks, how that was reached, and the forks that branch off it."""
    palette, state = frame.palette, frame.state
    rows: list[Strip] = []
    if trial.parent:
        parent = state.trials.get(trial.parent)
        name = parent.label if parent is not None else trial.parent
        where = f"{name} at turn {trial.fork_turn}"
        rows.append(row(width, (" forks ", palette.muted), (where, palette.text)))
        if trial.forked is not None:
            rows += [
                row(width, (f" {line}", palette.muted))
                for line in wrap(fork_words(trial.forked), width - 2)
            ]
    branches: dict[int, list[TrialView]] = {}
    for each in state.trials.values():
        if each.parent == trial.trial:
            branches.setdefault(each.fork_turn, []).append(each)
    for turn, forks in sorted(branches.items()):
        spans: list[Span] = [(f" ├ turn {turn} ", palette.muted)]
        for fork in forks:
            glyph = trial_glyph(fork, palette)
            spans += [(glyph.char, glyph.style), (" ", None)]
        solved = sum(fork.reward is not None and fork.reward >= 1 for fork in forks)
        scored = sum(fork.reward is not None for fork in forks)
        rows.append(split_row(width, spans, [(f"{solved}/{scored} solved ", palette.text)]))
    if (valued := state.turn_values.get(trial.trial)) is not None:
        rows += _values(valued, palette, width)
    return rows


def _values(valued: TurnsValued, palette: Palette, width: int) -> list[Strip]:
    """The chance to be solved along the turns, and where it changed most."""
    known = [(each.turn, each.passed / each.scored) for each in valued.values if each.scored]
    if not known:
        return [row(width, (" no fork of it could be scored", palette.muted))]
    spans: list[Span] = [(" value ", palette.muted)]
    for turn, value in known:
        spans += [
            (f"{turn}", palette.faint),
            (f"{level(value)} ", palette.reward(value)),
        ]
    spans += [("end", palette.faint), (level(valued.solved), palette.reward(valued.solved))]
    rows = [row(width, *spans)]
    after = dict([*known, (valued.turns + 1, float(valued.solved))])
    if (at := valued.turning_point) in after and at + 1 in after:
        word, style = turning(after[at], after[at + 1], palette)
        rows.append(
            row(
                width,
                (f" {word} at turn {at}", style),
                (f": {after[at]:.0%} before it, {after[at + 1]:.0%} after", palette.text),
            )
        )
    return rows


def turning(before: float, after: float, palette: Palette) -> tuple[str, Style]:
    """What a turning point is called, and its style."""
    return ("▼ lost", palette.bad) if after < before else ("▲ won", palette.good)


def fork_words(forked: TrialForked) -> str:
    """How a fork's state was reached, and how faithfully, in one line."""
    match forked.way:
        case "start":
            return "from the start"
        case "snapshot":
            said = f"state: snapshot of turn {forked.snapshot_turn}"
        case "replay":
            after = ""
            if forked.snapshot_turn is not None:
                after = f"snapshot of turn {forked.snapshot_turn}, then "
            turns = "1 turn" if forked.replayed == 1 else f"{forked.replayed} turns"
            said = f"state: {after}keys of {turns} typed again"
            if not (forked.replayed or after or forked.parted):
                return "state: nothing had been typed by then"
    if forked.parted:
        turns = ", ".join(map(str, forked.parted))
        return f"{said}; another screen after turn {turns}: {forked.difference}"
    lost = f"; not running any more: {', '.join(forked.lost)}" if forked.lost else ""
    return f"{said}; every screen as recorded{lost}"


def _group(trial: TrialView, frame: Frame, width: int) -> list[Strip]:
    palette, state = frame.palette, frame.state
    members = siblings(trial, state)
    spans: list[Span] = [(" group ", palette.muted)]
    for member in members:
        glyph = trial_glyph(member, palette)
        here = member.trial == trial.trial
        spans.append((f"{glyph.char}", palette.selected if here else glyph.style))
        if member.excluded:
            spans.append((LEFT_OUT_MARK, palette.attention))
        elif member.relabelled:
            spans.append((RELABELLED_MARK, palette.accent))
        spans.append((" ", None))
    left_out = Counter(member.left_out for member in members if member.left_out is not None)
    group = state.groups.get(trial.group)
    facts = []
    for reason, count in left_out.items():
        facts.append(f"{count} {'lost' if reason == 'infrastructure' else reason}")
    if group is not None and group.refilled:
        facts.append(f"{group.refilled} refilled")
    if group is not None and group.baseline is not None:
        facts.append(f"baseline {number(group.baseline)}")
    if group is not None and group.disposition is not None:
        facts.append(group.disposition)
    known = " · ".join(facts)
    if sum(cell_len(span) for span, _ in spans) + cell_len(known) + 1 <= width:
        rows = [split_row(width, spans, [(f"{known} ", palette.muted)])]
    else:
        rows = [row(width, *spans)]
        rows += [row(width, (f" {line}", palette.muted)) for line in wrap(known, width - 2)]
    if trial.excluded:
        why = f": {trial.exclusion_reason}" if trial.exclusion_reason else ""
        rows += _wrapped(f"excluded{why}", palette, width, LEFT_OUT_MARK)
    elif trial.relabelled:
        text = f"relabelled: {trial.relabel_reason}"
        rows += _wrapped(text, palette, width, RELABELLED_MARK)
    elif trial.left_out == "masked":
        touched = trial.outcome is Outcome.HUMAN_TOUCHED
        why = "a person typed here" if touched else doing(trial)
        rows += _wrapped(f"{why}: not trained on", palette, width, LEFT_OUT_MARK)
    return rows


def _wrapped(text: str, palette: Palette, width: int, mark: str) -> list[Strip]:
    lead: Span = (f" {mark} ", palette.attention)
    rows = []
    for part in list(wrap(text, width - 4))[:4]:
        rows.append(row(width, lead, (part, palette.text)))
        lead = ("   ", None)
    return rows


def _attempts(trial: TrialView, frame: Frame, width: int) -> list[Strip]:
    palette = frame.palette
    chain = attempts(trial, frame.state)
    wait = retry_wait(chain[-1], frame.now)
    if len(chain) == 1 and not wait and trial.successor is None:
        return []
    hint = f"  {frame.keys.name_of('attempt')} shows the next"
    rows = [row(width, (" attempts", palette.muted), (hint, palette.faint))]
    for each in chain:
        glyph = trial_glyph(each, palette)
        here = each.trial == trial.trial
        words = doing(each)
        why = each.retry_reason.replace("_", " ")
        if why and why not in words:
            words = f"{words} · {why}"
        spans: list[Span] = [
            (" ▸ " if here else "   ", palette.accent),
            (f"{glyph.char} ", glyph.style),
            (f"{each.attempt}  ", palette.strong if here else palette.text),
            (words, palette.text if here else palette.muted),
        ]
        tail: list[Span] = [(f"{elapsed(active_seconds(each, frame.now))} ", palette.muted)]
        rows.append(split_row(width, spans, tail))
    if wait:
        rows.append(row(width, ("  … ", palette.attention), (wait, palette.text)))
    return rows


def _commands(trial: TrialView, frame: Frame, width: int) -> list[Strip]:
    palette = frame.palette
    given = [each for each in frame.state.commands if each.target == trial.trial]
    if not given:
        return []
    rows = [row(width, (" commands", palette.muted))]
    for each in reversed(given[-8:]):
        mark, style = {
            None: ("…", palette.attention),
            True: ("✓", palette.good),
            False: ("✗", palette.bad),
        }[each.ok]
        stamp = time.strftime("%H:%M:%S", time.localtime(each.time))
        why = each.reason or ("" if each.ok else each.result)
        rows.append(
            row(
                width,
                (f"  {mark} ", style),
                (f"{stamp} ", palette.faint),
                (f"{verb_words(each.verb)} ", palette.accent),
                (f"{each.actor} ", palette.text),
                (why, palette.muted),
            )
        )
    return rows


_MOST_ROWS = 5000


class VerdictPane(Pane):
    """Outcome and reason, verdict and reward, and the verifier's output."""

    EVERY = 2

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.transcript = Transcript()

    def title(self, frame: Frame) -> str:
        finished = self.transcript.finished
        if finished is None:
            return "verdict"
        return f"verdict · verified in {number(finished.seconds.verifying)} s"

    def key(self, frame: Frame) -> Hashable:
        trial = frame.selected
        counts = trial and (trial.reward, trial.relabelled)
        # Not its seq alone: reading anew may end at the same event.
        return id(self.transcript), self.transcript.finished is None, counts

    @property
    def contents(self) -> str:
        finished = self.transcript.finished
        if finished is None:
            return ""
        return f"{finished.outcome}: {finished.reason}\n\n{finished.verifier_output}"

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, trial, finished = frame.palette, frame.selected, self.transcript.finished
        if finished is None:
            return [row(width, (" the outcome and the verifier's output", palette.faint))]
        glyph = trial_glyph(trial, palette) if trial is not None else None
        outcome = finished.outcome.replace("_", " ")
        none = "–"
        # What counts may be another reward than the verifier's.
        reward = finished.reward if trial is None else trial.reward
        relabelled = trial is not None and trial.relabelled
        rows = [
            split_row(
                width,
                [
                    (f" {glyph.char} " if glyph else " ", glyph.style if glyph else None),
                    (outcome, palette.strong),
                ],
                [
                    ("verdict ", palette.muted),
                    (none if finished.verdict is None else number(finished.verdict), palette.text),
                    ("  reward ", palette.muted),
                    (none if reward is None else number(reward), palette.reward(reward)),
                    (RELABELLED_MARK if relabelled else "", palette.accent),
                    (" ", None),
                ],
                palette.on_raised,
            )
        ]
        reason = " ".join(finished.reason.split())
        rows.extend(
            row(width, ("   ", None), (part, palette.text)) for part in wrap(reason, width - 4)
        )
        output = finished.verifier_output.strip("\n")
        if not output.strip():
            rows.append(row(width, ("   the verifier wrote nothing", palette.faint)))
            return rows
        for line in visible_lines(output):
            for part in wrap(line, width - 4) if line else [""]:
                if len(rows) >= _MOST_ROWS:
                    shows = frame.keys.name_of("pager")
                    rows.append(row(width, (f" │ … {shows} shows all", palette.faint)))
                    return rows
                rows.append(row(width, (" │ ", palette.faint), (part, palette.muted)))
        return rows
