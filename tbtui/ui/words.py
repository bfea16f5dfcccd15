"""A line in which the words of a filter or a search are typed, and the keys that work meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace

from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import Input, Static

from tbtui.ui.ground import Columns
from tbtui.ui.keymap import KeyTable
from tbtui.ui.keys import Key


class WordsLine(Columns):
    """What the words are for, which stays in sight when there are some; and the box for them."""

    def __init__(self, label: str, box: Input) -> None:
        super().__init__()
        self._label = label
        self._box = box

    def compose(self) -> ComposeResult:
        yield Static(self._label)
        yield self._box


def filter_line(words: str, placeholder: str) -> WordsLine:
    """For what leaves rows out while it is typed; it has these words by now."""
    box = Input(words, placeholder=placeholder, id="filter", max_length=100, select_on_focus=False)
    return WordsLine("filter", box)


@dataclass(frozen=True, slots=True)
class WayBack:
    """How a screen's box of words is left without them."""

    key: str
    """Id of the screen's own key for it."""
    label: str
    """What it does then."""


def keys_in_bar(
    keys: list[Key], table: KeyTable, focused: Widget | None, back: WayBack | None
) -> list[Key]:
    """A screen's `keys`; while words are typed, which most of them only add a letter to, those
    that work then."""
    if back is None or not isinstance(focused, Input):
        return keys
    return [table.entry("keep-words"), replace(table.entry(back.key), label=back.label)]
