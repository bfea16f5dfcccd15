"""What is wrong with the run, ranked: number, trend, trials behind it, the setting to change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.message import Message
from textual.strip import Strip

from tbtui.errors import UserError
from tbtui.findings import Finding, Remedy, Rule, Severity
from tbtui.journal.commands import RUN
from tbtui.journal.rundir import RunDirectory
from tbtui.ui.context import run_app_of
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import clip, clip_name, number, sparkline, wrap
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import StatusLine
from tbtui.ui.panes.key_bar import KeyBar
from tbtui.ui.panes.pane import MOMENT, Frame, Pane, Redraw
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.screens.dialogs import ConfirmDialog
from tbtui.ui.services import RunSettings
from tbtui.ui.textual_seam import Rows
from tbtui.ui.theme.glyphs import trial_glyph
from tbtui.ui.theme.palette import Palette
from tbtui.view.diagnosis.rules import Diagnosis
from tbtui.view.listing import TrialSet
from tbtui.view.waiting import doing

_MARKS: dict[Severity, str] = {"blocks": "✗", "costs": "▲", "watch": "·"}
_MEANINGS: dict[Severity, str] = {
    "blocks": "the run waits, or learns nothing",
    "costs": "costs trials, signal or time at every step",
    "watch": "to be watched: it costs little so far",
}
_NAME = 20
"""Cells of a finding's name, the gap after it included."""
_TREND = 10
_FEW_ROWS = 3
"""Rows of trials below which there is only room to count them."""
_HEAD = 10


def severity_style(severity: Severity, palette: Palette) -> Style:
    """How a finding of this severity is drawn."""
    styles = {"blocks": palette.bad, "costs": palette.attention, "watch": palette.muted}
    return styles[severity]


def trend_blocks(finding: Finding, width: int) -> str:
    """The trend as blocks; what is no share is drawn against its own maximum."""
    most = max((abs(value) for value in finding.trend), default=0.0)
    scale = 1.0 if most <= 1 and finding.share > 0 and "%" in finding.text else most or 1.0
    return sparkline([value / scale for value in finding.trend], width)


@dataclass(slots=True)
class FindingCursor:
    """The findings on the screen, and the chosen one, which stays chosen while it is there."""

    findings: tuple[Finding, ...] = ()
    _rule: Rule | None = None
    _place: int = field(default=0)

    def follow(self, findings: tuple[Finding, ...]) -> None:
        """Take new findings; one that is gone leaves the cursor at its place."""
        self.findings = findings
        rules = [each.rule for each in findings]
        if self._rule in rules:
            self._place = rules.index(self._rule)
        self.choose(self._place)

    def choose(self, place: int) -> None:
        self._place = min(max(0, place), max(0, len(self.findings) - 1))
        self._rule = self.findings[self._place].rule if self.findings else None

    @property
    def place(self) -> int:
        return self._place

    @property
    def chosen(self) -> Finding | None:
        return self.findings[self._place] if self.findings else None


ESTIMATED = "estimated from the run's figures: recorded rollouts can't be recomputed with it"


@dataclass(slots=True)
class SettingPreview:
    """What the proposed setting would have made of the last recorded step."""

    of: Hashable = None
    """The proposed setting, and the step at which it was computed."""
    lines: tuple[str, ...] = ()
    """By the what-if, or `ESTIMATED`; none before they are computed."""


def preview_lines(
    make: Callable[[], RunSettings], run: RunDirectory, remedy: Remedy
) -> tuple[str, ...]:
    """The what-if of a proposed setting, or that there is none; slow."""
    book = make()
    if not any(entry.tried for entry in book.entries if entry.name == remedy.setting):
        return (ESTIMATED,)
    try:
        return tuple(book.effect(run, remedy.setting, remedy.text.partition("=")[2]))
    except UserError as error:
        return (f"not computed: {error}",)


class FindingList(Pane):
    """A row for each finding, the most important first."""

    EVERY = MOMENT

    def __init__(self, id: str, cursor: FindingCursor) -> None:
        super().__init__(id)
        self._cursor = cursor

    def title(self, frame: Frame) -> str:
        count = len(self._cursor.findings)
        return f"diagnosis · {count} finding{'s' * (count != 1)}" if count else "diagnosis"

    def key(self, frame: Frame) -> Hashable:
        return self._cursor.findings, self._cursor.place

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette = frame.palette
        if not self._cursor.findings:
            waiting = frame.state.started_at is None or not frame.state.trials_finished
            text = "after the first trials" if waiting else "nothing is wrong by these rules"
            return [row(width, (f" {text}", palette.faint if waiting else palette.good))]
        return [
            self._row(each, place == self._cursor.place, palette, width)
            for place, each in enumerate(self._cursor.findings)
        ]

    def _row(self, finding: Finding, chosen: bool, palette: Palette, width: int) -> Strip:
        style = severity_style(finding.severity, palette)
        left: list[Span] = [
            ("▸" if chosen else " ", palette.accent),
            (f"{_MARKS[finding.severity]} ", style),
            (
                f"{clip(finding.rule.words, _NAME - 1):<{_NAME}}",
                palette.strong if chosen else palette.text,
            ),
            (finding.text, palette.text),
        ]
        right: list[Span] = []
        if finding.remedy is not None and width >= 90:
            right.append((f"{finding.remedy.text}  ", palette.accent))
        if width >= 60:
            right.append((f"{trend_blocks(finding, _TREND)} ", palette.muted))
        return split_row(width, left, right)

    def on_click(self, event: events.Click) -> None:
        at = self.place_of(event)
        if at is not None and at.y < len(self._cursor.findings):
            self._cursor.choose(at.y)
            self.redraw()


class FindingDetail(Pane):
    """The chosen finding in full."""

    EVERY = MOMENT

    def __init__(self, id: str, cursor: FindingCursor, preview: SettingPreview) -> None:
        super().__init__(id)
        self._cursor, self._preview = cursor, preview

    def title(self, frame: Frame) -> str:
        chosen = self._cursor.chosen
        return chosen.rule.words if chosen is not None else ""

    def key(self, frame: Frame) -> Hashable:
        finding, known = self._cursor.chosen, frame.state.trials
        behind = () if finding is None else [doing(known[e]) for e in finding.trials if e in known]
        return finding, frame.state.status, tuple(behind), self._preview.lines

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, finding = frame.palette, self._cursor.chosen
        if finding is None:
            return []
        style = severity_style(finding.severity, palette)
        rows = _part("measured", finding.text, palette.strong, palette, width)
        rows += _part("threshold", finding.limit, palette.muted, palette, width)
        if len(finding.trend) > 1:
            ends = f"{_value(finding, 0)} → {_value(finding, -1)}, {len(finding.trend)} steps"
            room = max(4, width - _HEAD - len(ends) - 4)
            blocks = trend_blocks(finding, min(room, len(finding.trend)))
            rows.append(
                row(
                    width,
                    (f" {'trend':<{_HEAD}}", palette.muted),
                    (blocks, style),
                    (f"  {ends}", palette.muted),
                )
            )
        rows += _part("cause", finding.why, palette.text, palette, width)
        rows += _part("fix", finding.advice, palette.text, palette, width)
        if finding.remedy is not None:
            rows += self._remedy(finding.remedy, frame, width)
        rows += _part("severity", _MEANINGS[finding.severity], style, palette, width)
        return [*rows, *_trials(finding, frame, width, height - len(rows))]

    def _remedy(self, remedy: Remedy, frame: Frame, width: int) -> list[Strip]:
        palette = frame.palette
        effect = effect_now(self, remedy, frame.state.status is None)
        key = frame.keys.name_of("finding-apply")
        when = f"{key} sets it now; {effect}" if effect else f"for the next run; {key} copies it"
        rows = _part("setting", remedy.text, palette.accent, palette, width)
        rows += _part("leads to", remedy.preview, palette.text, palette, width)
        head = "" if self._preview.lines == (ESTIMATED,) else "what-if"
        for line in self._preview.lines:
            rows += _part(head, line, palette.muted if not head else palette.text, palette, width)
            head = " " if head else ""
        return rows + _part("", when, palette.muted, palette, width)


def _part(head: str, text: str, style: Style, palette: Palette, width: int) -> list[Strip]:
    """A head and its text, in as many rows as that takes."""
    rows = []
    for part in list(wrap(" ".join(text.split()), max(8, width - _HEAD - 2)))[:8] or [""]:
        rows.append(row(width, (f" {head:<{_HEAD}}", palette.muted), (part, style)))
        head = ""
    return rows


def _value(finding: Finding, place: int) -> str:
    value = finding.trend[place]
    return f"{value:.0%}" if "%" in finding.text and 0 <= value <= 1 else number(value)


def _trials(finding: Finding, frame: Frame, width: int, height: int) -> list[Strip]:
    """The trials behind a finding, the latest first, as many as there is room for."""
    palette, known = frame.palette, frame.state.trials
    behind = [known[name] for name in reversed(finding.trials) if name in known]
    if not behind:
        return []
    key = frame.keys.name_of("finding-trials")
    count = f"{len(behind)} in memory, {key} shows them in the cockpit"
    rows = _part("trials", count, palette.muted, palette, width)
    shown = behind[: height - 1] if height > _FEW_ROWS else []
    label = min(30, max((len(trial.label) for trial in shown), default=0)) + 2
    for trial in shown:
        glyph = trial_glyph(trial, palette)
        rows.append(
            row(
                width,
                (f" {'':<{_HEAD}}{glyph.char} ", glyph.style),
                (f"{clip_name(trial.label, label - 1):<{label}}", palette.text),
                (f"step {trial.step:<4}", palette.muted),
                (f"{doing(trial):<18}", palette.muted),
                (" ".join(trial.reason.split()), palette.faint),
            )
        )
    return rows


def effect_now(pane: Pane, remedy: Remedy, goes_on: bool) -> str:
    """From when on the change is felt, if it can be made in the run on the screen now."""
    app = run_app_of(pane)
    live_effect = app.services.live_effect
    if not goes_on or live_effect is None or app.shown.refusal:
        return ""
    return live_effect(remedy.setting)


class DiagnosisScreen(LiveScreen):
    """Findings, and the chosen one in full."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("diagnosis", "everywhere")
    BINDINGS = bindings("diagnosis")
    AUTO_FOCUS = "#findings"
    OVERVIEW = ("findings", "finding")
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {"diagnosed": ("findings", "finding")}

    class Wanted(Message):
        """The cockpit is to show these trials alone."""

        def __init__(self, trials: TrialSet) -> None:
            super().__init__()
            self.trials = trials

    def __init__(self) -> None:
        super().__init__()
        self._diagnosis = Diagnosis()
        self._cursor = FindingCursor()
        self._preview = SettingPreview()

    def compose_panes(self) -> ComposeResult:
        yield StatusLine("status")
        with Rows(id="diagnosed"):
            yield FindingList("findings", self._cursor)
            yield FindingDetail("finding", self._cursor, self._preview)
        yield KeyBar("keys", *self.SCOPES)

    def show(self, frame: Frame, beat: int) -> None:
        found = self._diagnosis.at(frame.outlook)
        if found is not self._cursor.findings:
            self._cursor.follow(found)
            # No taller than what it shows.
            edges = 2 if self.roomy else 1
            self.query_one(FindingList).styles.height = max(1, len(found)) + edges
        self._look_ahead(frame)
        super().show(frame, beat)

    def _look_ahead(self, frame: Frame) -> None:
        """Compute what the chosen finding's setting leads to, once a step."""
        remedy = self._cursor.chosen.remedy if self._cursor.chosen is not None else None
        of = remedy and (remedy.text, frame.run.directory, frame.state.step)
        if of == self._preview.of:
            return
        self._preview.of, self._preview.lines = of, ()
        make = run_app_of(self).services.settings
        if remedy is not None and make is not None:
            self.run_worker(
                self._compute(make, frame.run.directory, remedy), name="what-if", exclusive=True
            )

    async def _compute(
        self, make: Callable[[], RunSettings], run: RunDirectory, remedy: Remedy
    ) -> None:
        of = self._preview.of
        lines = await asyncio.to_thread(preview_lines, make, run, remedy)
        if of == self._preview.of:
            self._preview.lines = lines
            self.post_message(Redraw())

    def idle_keys(self) -> Iterable[str]:
        finding = self._cursor.chosen
        if not self._behind(finding):
            yield "finding-trials"
        if finding is None or finding.remedy is None:
            yield "finding-apply"

    def _behind(self, finding: Finding | None) -> frozenset[str]:
        """The trials behind a finding that are still in memory."""
        known = run_app_of(self).live_run.state.trials
        return (
            frozenset(name for name in finding.trials if name in known) if finding else frozenset()
        )

    def action_back(self) -> None:
        self.dismiss()

    def action_move(self, rows: int) -> None:
        self._cursor.choose(self._cursor.place + rows)
        self.query_one(FindingList).reveal(self._cursor.place)
        self.post_message(Redraw())

    def action_trials(self) -> None:
        """Show the trials behind the chosen finding in the cockpit."""
        finding = self._cursor.chosen
        behind = self._behind(finding)
        if finding is None or not behind:
            self.notify("This finding is not about single trials.", markup=False, timeout=3)
            return
        self.post_message(self.Wanted(TrialSet(finding.rule.words, behind)))

    def action_apply(self) -> None:
        """Change the proposed setting now, or copy it for the next run."""
        finding = self._cursor.chosen
        if finding is None or (remedy := finding.remedy) is None:
            self.notify("There is no setting to change for this finding.", markup=False, timeout=3)
            return
        goes_on = run_app_of(self).live_run.state.status is None
        effect = effect_now(self.query_one(FindingList), remedy, goes_on)
        if effect:
            self._confirm(remedy, effect)
            return
        self.app.copy_to_clipboard(remedy.text)
        self.notify(f"next run: {remedy.text}", title="Copied", markup=False, timeout=8)

    def _confirm(self, remedy: Remedy, effect: str) -> None:
        before = run_app_of(self).live_run.state.settings.get(remedy.setting)

        def answered(yes: bool | None) -> None:
            if yes:
                run_app_of(self).steering.submit(
                    "set", RUN, remedy.text, arguments={remedy.setting: remedy.value}
                )

        shown = Remedy(remedy.setting, before, "").text.partition("=")[2]
        preview = "; ".join((remedy.preview, *self._preview.lines))
        dialog = ConfirmDialog(
            f"Set {remedy.text} (now {shown})?",
            f"{preview[:1].upper()}{preview[1:]}. When: {effect}.",
            "set it",
            "go back",
        )
        dialog.pointless = lambda: run_app_of(self).shown.refusal
        self.app.push_screen(dialog, answered)
