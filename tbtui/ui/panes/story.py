"""What a trial's task asks, and the story of the trial: in lines, and the instruction in full."""

from __future__ import annotations

from collections.abc import Hashable

from rich.style import Style
from textual.strip import Strip

from tbtui.ui.drawing.rows import Span, row
from tbtui.ui.drawing.text import clip, visible, visible_lines, wrap
from tbtui.ui.panes.bars import LinePane
from tbtui.ui.panes.pane import Frame, Pane
from tbtui.ui.theme.palette import Palette
from tbtui.view.state import TrialView

LINED = 20
"""Rows of a window from which on there is room for a trial's two lines."""
_MOST_ROWS = 5000
_NAME = 8
"""Cells that a name which does not fit leaves free at a row's end, about."""


def asks_row(frame: Frame, trial: TrialView, width: int) -> Strip:
    """` asks  Create a file named out.json …`."""
    from tbtui.view.prompt import asks

    palette = frame.palette
    text = visible(asks(frame.run.stories.instruction(trial)))
    said: Span = (clip(text, width - 9), palette.text)
    if not text:
        said = ("the task's instruction is not recorded", palette.faint)
    return row(width, (" asks   ", palette.muted), said)


def story_row(frame: Frame, trial: TrialView, width: int) -> Strip:
    """` story  created out.log, asked for out.json; verifier: missing out.json`."""
    return row(width, (" story  ", frame.palette.muted), *story_spans(frame, trial, width - 9))


def story_spans(frame: Frame, trial: TrialView, width: int) -> list[Span]:
    """The trial's story in at most `width` cells, its end coloured by the trial's reward."""
    palette = frame.palette
    story = frame.run.stories.story(trial)
    line = clip(visible(story.within(width)), width)
    if not line:
        return [("nothing yet" if trial.live else "nothing was tried", palette.faint)]
    ended = visible(story.ended)
    if ended and line.endswith(ended):
        before = line.removesuffix(ended)
        return [(before, palette.text), (ended, _end_style(trial, palette))]
    if ended and ended.startswith(line.removesuffix("…")):
        return [(line, _end_style(trial, palette))]
    return [(line, palette.text)]


def story_rows(frame: Frame, trial: TrialView, width: int, rows: int) -> list[Strip]:
    """The trial's story in so many rows, in a column that is narrow."""
    # A row that is broken at a space is not filled.
    spans = story_spans(frame, trial, (width - 2) * rows - (rows - 1) * _NAME)
    story = "".join(text for text, _ in spans)
    end = len(story) - len(spans[-1][0]) if len(spans) > 1 else len(story)
    lines: list[Strip] = []
    place = 0
    for part in list(wrap(story, width - 2))[:rows]:
        place = story.index(part, place)
        split = min(len(part), max(0, end - place))
        lines.append(
            row(width, (" ", None), (part[:split], spans[0][1]), (part[split:], spans[-1][1]))
        )
        place += len(part)
    return lines + [row(width)] * (rows - len(lines))


def _end_style(trial: TrialView, palette: Palette) -> Style:
    if trial.infrastructure:
        return palette.infrastructure
    return palette.muted if trial.reward is None else palette.reward(trial.reward)


class TrialLines(LinePane):
    """Two lines below a trial's head: what its task asks, and its story."""

    def key(self, frame: Frame) -> Hashable:
        return frame.selected and story_key(frame.selected)

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        if (trial := frame.selected) is None:
            return []
        return [asks_row(frame, trial, width), story_row(frame, trial, width)]


def story_key(trial: TrialView) -> Hashable:
    """What a trial's two lines depend on."""
    return (
        *(trial.trial, trial.phase, trial.turn, len(trial.samples)),
        *(trial.outcome, trial.reward, trial.touched),
    )


class InstructionPane(Pane):
    """The instruction of the trial's task, as its agent read it."""

    def title(self, frame: Frame) -> str:
        return "task" if frame.selected is None else f"task · {frame.selected.task}"

    def key(self, frame: Frame) -> Hashable:
        trial = frame.selected
        return trial and (trial.task, len(trial.samples))

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, trial = frame.palette, frame.selected
        text = "" if trial is None else frame.run.stories.instruction(trial)
        if not text:
            return [row(width, (" the task's instruction is not recorded", palette.faint))]
        return text_rows(text, palette, width)


def text_rows(text: str, palette: Palette, width: int, lead: str = " ") -> list[Strip]:
    """A text in rows, at most `_MOST_ROWS`."""
    rows: list[Strip] = []
    for line in visible_lines(text):
        for part in wrap(line, width - len(lead) - 1) if line else [""]:
            rows.append(row(width, (lead, palette.faint), (part, palette.text)))
            if len(rows) >= _MOST_ROWS:
                return rows
    return rows
