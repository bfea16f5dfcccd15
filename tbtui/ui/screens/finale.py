"""The summary of a finished run, and what can be done with it next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from tbtui.ui.drawing.text import visible
from tbtui.ui.screens.dialogs import Dialog, Hint
from tbtui.view.ending import Ending, Line
from tbtui.view.times import Outlook
from tbtui.view.waiting import duration

Next = Literal["eval", "replay", "compare", "quit"]
"""What follows: evaluate its weights, replay it, compare it with another run, leave."""

_HEADS = {
    "rates": "held out",
    "gained": "gained",
    "best": "best weights",
    "saved": "weights",
    "server": "server",
}


@dataclass(frozen=True, slots=True)
class Finale:
    """The summary of a finished run."""

    title: str
    lines: Sequence[Line]
    evaluates: bool
    """There are weights to evaluate."""


def finale(ending: Ending, outlook: Outlook) -> Finale | None:
    """The summary of a finished run; None: it has taken no steps."""
    state = outlook.state
    if not ending.trains:
        return None
    steps = f"{state.step} step{'' if state.step == 1 else 's'}"
    took = f"{duration(state.seconds(outlook.now))}, {state.rollouts:,} rollouts"
    lines = [(_HEADS[head], text) for head, text in ending.lines() if head in _HEADS]
    consumed = _consumed(state.totals)
    lines.append(("took", f"{took}{consumed}"))
    return Finale(f"{state.run} has finished: {steps}", lines, ending.saved)


def _consumed(totals: dict[str, float]) -> str:
    from tbtui.view.sentences import dollars

    sampled = totals.get("tokens/total/sampled")
    text = f", {sampled:,.0f} tokens sampled" if sampled else ""
    cost = totals.get("cost/total_usd")
    return text + (f", {dollars(cost)}" if cost else "")


class FinaleDialog(Dialog[Next | None]):
    """Shows the summary; None: the person goes on looking at the run."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter", "dismiss(None)", "look around"),
        Binding("e", "next('eval')", "evaluate"),
        Binding("r", "next('replay')", "replay"),
        Binding("c", "next('compare')", "compare"),
        # With its id: a person may have given it another key.
        Binding("q", "next('quit')", "quit", id="quit"),
    ]

    def __init__(self, finale: Finale) -> None:
        super().__init__()
        self._finale = finale

    def compose(self) -> ComposeResult:
        rows = [
            Content.assemble((f"{head:<14}", "$tb-muted"), Content(visible(text)))
            for head, text in self._finale.lines
        ]
        evaluate = [("e  evaluate it", "next('eval')")] if self._finale.evaluates else []
        with Vertical(id="dialog"):
            yield Static(Content(visible(self._finale.title)), id="question")
            yield Static(Content("\n").join(rows), id="detail")
            yield Hint(
                *evaluate,
                ("r  replay it", "next('replay')"),
                ("c  compare with another run", "next('compare')"),
                ("esc  look around", "next('')"),
                ("q  quit", "next('quit')"),
            )

    def action_next(self, what: Next | Literal[""]) -> None:
        if what != "eval" or self._finale.evaluates:
            self.dismiss(what or None)
