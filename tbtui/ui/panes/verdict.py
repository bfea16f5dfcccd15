"""How a trial ended: outcome and reason, verdict and reward, and all that the verifier wrote."""

from __future__ import annotations

from collections.abc import Hashable

from textual.strip import Strip

from tbtui.ui.drawing.rows import row, split_row
from tbtui.ui.drawing.text import number, visible_lines, wrap
from tbtui.ui.panes.pane import Frame, Pane
from tbtui.ui.theme.glyphs import RELABELLED_MARK, trial_glyph
from tbtui.view.transcript import Transcript

_MOST_ROWS = 5000


class VerdictPane(Pane):
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
            return [row(width, (" the outcome, and what the verifier wrote", palette.faint))]
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
