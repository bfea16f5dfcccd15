"""Every key of the app, once: bindings, key bar, help and command palette are made from this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding, BindingType

Scope = Literal["everywhere", "cockpit", "trials", "tasks", "trial", "turns"]

SCOPE_TITLES: dict[Scope, str] = {
    "everywhere": "everywhere",
    "cockpit": "cockpit",
    "trials": "trials",
    "tasks": "tasks",
    "trial": "trial",
    "turns": "turns",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that a key does."""

    id: str
    scope: Scope
    keys: str
    """As Textual names them, separated by commas."""
    shown: str
    """As people name them."""
    action: str
    label: str
    """One or two words, for the key bar."""
    help: str
    bar: bool = False
    """In the key bar."""
    palette: bool = True
    """In the command palette."""
    priority: bool = False
    bound: bool = True
    """False: Textual binds it itself."""


KEYS: tuple[Key, ...] = (
    Key("open", "cockpit", "enter", "enter", "open", "open", "Open the selected trial", bar=True),
    Key(
        *("pause", "cockpit", "space", "space", "toggle_pause", "pause"),
        "Pause the selected trial at its turn boundary, or resume it; its time stands still",
        bar=True,
    ),
    Key(
        *("stop", "cockpit", "s", "s", "stop", "stop"),
        "End the selected trial at its turn boundary and verify what it has done",
        bar=True,
    ),
    Key(
        *("follow", "cockpit", "f", "f", "app.follow", "follow"),
        "Let the selection follow what happens; any choice of yours ends that",
    ),
    Key(
        *("pause-run", "everywhere", "P", "P", "app.pause_run", "pause run"),
        "Pause every trial at its turn boundary, or resume the run",
        bar=True,
    ),
    Key("pane-1", "cockpit", "1", "1", "full(1)", "tasks", "Tasks in full", bar=True),
    Key(
        "pane-2",
        "cockpit",
        "2",
        "2",
        "full(2)",
        "terminal",
        "The selected terminal in full",
        bar=True,
    ),
    Key("pane-3", "cockpit", "3", "3", "full(3)", "tokens", "Tokens in full", bar=True),
    Key(
        "pane-4",
        "cockpit",
        "4",
        "4",
        "full(4)",
        "curves",
        "Rewards, pass rate, notes in full",
        bar=True,
    ),
    Key("pane-5", "cockpit", "5", "5", "full(5)", "queue", "Queue and processes in full", bar=True),
    Key("overview", "cockpit", "escape,0", "esc", "full(0)", "overview", "Back to the overview"),
    Key(
        *(
            "move-left",
            "trials",
            "left,h",
            "← h",
            "move(-1, 0)",
            "left",
            "Select the trial to the left",
        ),
        palette=False,
    ),
    Key(
        *("move-down", "trials", "down,j", "↓ j", "move(0, 1)", "down", "Select the trial below"),
        palette=False,
    ),
    Key(
        *("move-up", "trials", "up,k", "↑ k", "move(0, -1)", "up", "Select the trial above"),
        palette=False,
    ),
    Key(
        *("move-right", "trials", "right,l", "→ l", "move(1, 0)", "right"),
        "Select the trial to the right",
        palette=False,
    ),
    Key("tree-down", "tasks", "down,j", "↓ j", "move(1)", "down", "Next row", palette=False),
    Key("tree-up", "tasks", "up,k", "↑ k", "move(-1)", "up", "Previous row", palette=False),
    Key(
        *("tree-toggle", "tasks", "enter,space,right,left", "enter", "unfold", "open"),
        "Open or close a kind of task",
        palette=False,
    ),
    Key("back", "trial", "escape", "esc", "back", "back", "Back to the cockpit", bar=True),
    Key(
        *("trial-pause", "trial", "space", "space", "toggle_pause", "pause"),
        "Pause this trial at its turn boundary, or resume it",
        bar=True,
    ),
    Key(
        *("trial-stop", "trial", "s", "s", "stop", "stop"),
        "End this trial at its turn boundary and verify it",
        bar=True,
    ),
    Key(
        *("previous-turn", "trial", "left_square_bracket", "[", "turn(-1)", "turn"),
        "The turn before",
    ),
    Key(
        "next-turn",
        "trial",
        "right_square_bracket",
        "]",
        "turn(1)",
        "turn",
        "The turn after",
        bar=True,
    ),
    Key(
        *("next-surprise", "trial", "n", "n", "surprise(1)", "surprise"),
        "Jump to the next surprising token",
        bar=True,
    ),
    Key(
        *("previous-surprise", "trial", "N", "N", "surprise(-1)", "surprise"),
        "Jump to the surprising token before",
    ),
    Key("trial-1", "trial", "1", "1", "full(1)", "terminal", "Terminal in full", bar=True),
    Key("trial-2", "trial", "2", "2", "full(2)", "turns", "Turns in full", bar=True),
    Key("trial-3", "trial", "3", "3", "full(3)", "tokens", "Tokens in full", bar=True),
    Key("turn-up", "turns", "up,k", "↑ k", "step(-1)", "up", "The turn before", palette=False),
    Key("turn-down", "turns", "down,j", "↓ j", "step(1)", "down", "The turn after", palette=False),
    Key(
        *("next-pane", "everywhere", "tab", "tab", "app.focus_next", "pane", "Next pane"),
        palette=False,
        bound=False,
    ),
    Key("theme", "everywhere", "t", "t", "app.next_theme", "theme", "Next theme"),
    Key(
        *("palette", "everywhere", "ctrl+p", "^p", "app.command_palette", "commands"),
        "Find and run any command",
        palette=False,
        bound=False,
    ),
    Key(
        *("help", "everywhere", "question_mark,f1", "?", "app.help", "help", "Keys and glyphs"),
        bar=True,
    ),
    Key(
        *("quit", "everywhere", "q", "q", "app.leave", "quit"),
        "Leave; a live run is stopped and cleaned up first, if you say so",
        bar=True,
    ),
    Key(
        *("interrupt", "everywhere", "ctrl+c,ctrl+q", "^c", "app.interrupt", "stop run"),
        "Stop the run, clean up and leave; a second time leaves at once",
        priority=True,
    ),
)


def bindings(*scopes: Scope) -> list[BindingType]:
    """Textual's bindings of the scopes."""
    return [
        Binding(key.keys, key.action, key.label, show=False, priority=key.priority, id=key.id)
        for key in KEYS
        if key.scope in scopes and key.bound
    ]


def in_scope(*scopes: Scope) -> list[Key]:
    """The keys of the scopes, scope by scope."""
    return [key for scope in scopes for key in KEYS if key.scope == scope]
