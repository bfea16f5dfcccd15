"""Does what a key does, for those who click on it or find it in the command palette."""

from __future__ import annotations

from typing import Any

from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

from tbtui.ui.keys import Key


async def perform(screen: Screen[Any], key: Key) -> None:
    """As if it were pressed where it works: in the focused pane, in the screen, or in another
    pane, which then has the focus."""
    owner = _owner(screen, key)
    if isinstance(owner, Widget) and owner is not screen:
        screen.set_focus(owner, scroll_visible=False)
    await screen.app.run_action(key.action, owner)


def _owner(screen: Screen[Any], key: Key) -> DOMNode:
    """Whose key it is."""
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
