"""What the top line of every screen says while a step waits for somebody."""

from __future__ import annotations

from textual.screen import Screen

from tbtui.ui.draw import Span
from tbtui.ui.pane import Frame


def review_notice(frame: Frame, screen: Screen[object]) -> list[Span]:
    """`review waits · V`, with the key that opens it; nothing where it is open."""
    from tbtui.ui.screens.base import ScopedScreen

    state = frame.state
    scopes = screen.SCOPES if isinstance(screen, ScopedScreen) else ()
    if not state.reviews or state.status is not None or "review" in scopes:
        return []
    return [(f"review waits · {frame.keys.name_of('review')} ", frame.palette.attention)]
