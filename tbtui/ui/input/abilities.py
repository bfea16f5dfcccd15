"""Which keys are available for the run on the screen; performs a key for a click on it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

from tbtui.invocation import to_type
from tbtui.ui.input.keys import CLOCKED, Key, KeyTable, Need, Scope
from tbtui.ui.runs import OpenRun

REVIEW = "review"
"""Id of a key that has a place in the key bar only where reviews are."""

CONTROLS = "take-controls"
"""Id of the key that is in the bar only while another client has the controls."""

_ONLY_LOOKS = "Not available here: this run is read-only."


@dataclass(frozen=True, slots=True)
class Abilities:
    """What can be done with the run on the screen, and so which keys are available."""

    shown: OpenRun
    showing_other: bool
    """It is another run than the app's own."""
    guest: bool
    """The person is no user of this machine: nothing is written or opened on it."""
    library: bool
    """There are tasks to browse."""
    settings: bool
    """There are settings to show."""

    def refusal(self, need: Need | None) -> str:
        """Why a key's need isn't met, in one line; empty: it is."""
        match need:
            case "steer":
                return self.shown.over
            case "paced":
                return self.shown.over or ("" if self.paced else "The run goes at full speed.")
            case "clock" if self.shown.run.replay is None:
                here = self.shown.run.directory.path
                return f"Only a recorded run has a clock: {to_type('replay', here)}."
            case "return" if not self.showing_other:
                return "This is the run that the app was started for."
            case "tasks" if not self.library and not self.guest:
                return f"Not available here: {to_type('tasks', 'browse')} shows the tasks."
            case "settings" if not self.settings:
                return f"Not available here: {to_type('settings')} explains them."
            case "fleet":
                return f"Not available here: {to_type('fleet')} shows all runs."
            case "tasks" | "runs" | "files" if self.guest:
                return _ONLY_LOOKS
            case _:
                return ""

    def met(self, keys: Iterable[Key]) -> list[Key]:
        """Return those of the keys whose needs are met."""
        return [key for key in keys if not self.refusal(key.need)]

    def on_screen(self, table: KeyTable, scopes: Collection[Scope]) -> list[Key]:
        """The keys of a screen with these scopes. A clock takes the place of others' keys."""
        # One that is named as a scope leads to the screen that has it.
        keys = [key for key in self.met(table.in_scope(*scopes)) if key.id not in scopes]
        clock = self.met(table.in_scope("replay")) if not CLOCKED.isdisjoint(scopes) else []
        taken = {stroke for key in clock for stroke in strokes(key)}
        return [key for key in keys if not taken & strokes(key)] + clock

    def in_bar(self, table: KeyTable, scopes: Sequence[Scope]) -> list[Key]:
        """Return those of them that have a rank in the key bar."""
        reviewed = "steering" in scopes and self.reviewed
        keys = self.on_screen(table, scopes)
        return [
            key
            for key in keys
            if key.bar and (reviewed or key.id != REVIEW) and self._commands(key)
        ]

    def _commands(self, key: Key) -> bool:
        """Whether a key for commands would be carried out now: another client may have the
        controls, which can be taken then."""
        if key.need != "steer":
            return True
        return bool(self.shown.refusal) == (key.id == CONTROLS)

    @property
    def paced(self) -> bool:
        """Whether the run is slowed down now, at its beginning, for people to follow."""
        state = self.shown.run.state
        return bool(state.step < 1 and state.settings.get("pace_sec"))

    @property
    def reviewed(self) -> bool:
        """Whether a step waits for a review, or may come to."""
        state = self.shown.run.state
        asked = state.status is None and state.settings.get("review", "off") != "off"
        return asked or bool(state.reviews)

    def refused_on(self, key: Key, table: KeyTable, scopes: Sequence[Scope]) -> str:
        """Say why a key isn't available, on a screen with these
        scopes; empty: it is not one of this screen's, or another one's here."""
        everywhere: Scope = "everywhere" if CLOCKED.isdisjoint(scopes) else "replay"
        taken = {each for other in self.on_screen(table, scopes) for each in strokes(other)}
        if key.scope not in (*scopes, everywhere) or taken & strokes(key):
            return ""
        return self.refusal(key.need)


def strokes(key: Key) -> set[str]:
    return set(key.keys.split(","))


async def perform(screen: Screen[Any], key: Key) -> None:
    """Perform a key's action where it works: in the focused pane, in the screen, or in another
    pane, which then has the focus."""
    owner = _owner(screen, key)
    if isinstance(owner, Widget) and owner is not screen:
        screen.set_focus(owner, scroll_visible=False)
    await screen.app.run_action(key.action, owner)


def _owner(screen: Screen[Any], key: Key) -> DOMNode:
    """Return the widget whose key it is."""
    around = (screen.focused or screen).ancestors_with_self
    panes = (each for each in screen.query(Widget) if each.focusable)
    for node in (*around, *panes):
        if _binds(node, key.id):
            return node
    return screen


def _binds(node: DOMNode, id: str) -> bool:
    return any(
        isinstance(each, Binding) and each.id == id
        for kind in type(node).__mro__
        for each in vars(kind).get("BINDINGS", ())
    )


def tour_lines(table: KeyTable, abilities: Abilities) -> tuple[str, ...]:
    """Five lines of at most 56 cells, with the keys in force, on what can be done with the run."""
    shown = {key.id: key.shown for key in table.keys}
    return (
        f"Arrows choose a trial, {shown['open']} opens it, {shown['back']} goes back",
        _acting(shown, abilities),
        f"{shown['pane-1']} to {shown['pane-6']} enlarge one pane, {shown['all-panes']} shows all",
        f"{shown['palette']} finds commands, {shown['help']} lists keys and glyphs",
        f"{shown['quit']} quits; {shown['tour']} shows this again",
    )


def _acting(shown: dict[str, str], abilities: Abilities) -> str:
    if not abilities.refusal("clock"):
        return f"{shown['play']} plays it, {shown['replay-turn']} goes to the next turn"
    if abilities.refusal("steer"):
        return (
            f"{shown['follow']} follows running trials, {shown['group']} compares a group's trials"
        )
    if abilities.reviewed:
        return f"{shown['pause']} pauses a trial, {shown['review']} reviews a step before training"
    return f"{shown['pause']} pauses a trial, {shown['stop']} stops and verifies it"
