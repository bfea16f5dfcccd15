"""Every key of the app, once: bindings, key bar, help and command palette are made from this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding, BindingType

Scope = Literal[
    "everywhere", "steering", "cockpit", "trials", "tasks", "trial", "turns", "commands"
]

SCOPE_TITLES: dict[Scope, str] = {
    "everywhere": "everywhere",
    "steering": "the selected or opened trial",
    "cockpit": "cockpit",
    "trials": "trials",
    "tasks": "tasks",
    "trial": "trial",
    "turns": "turns",
    "commands": "commands given",
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
    bar: int = 0
    """Its rank in the key bar: 1 stays longest when room is short; 0 is never there."""
    palette: bool = True
    """In the command palette."""
    priority: bool = False
    bound: bool = True
    """False: Textual binds it itself."""


KEYS: tuple[Key, ...] = (
    Key("open", "cockpit", "enter", "enter", "open", "open", "Open the selected trial", bar=1),
    Key("back", "trial", "escape", "esc", "back", "back", "Back to the cockpit", bar=1),
    Key("close", "commands", "escape", "esc", "back", "back", "Back", bar=1),
    Key(
        *("pause", "steering", "space", "space", "app.steer('pause')", "pause"),
        "Pause the trial at the end of its turn, or resume it; its time stands still",
        bar=1,
    ),
    Key(
        *("freeze", "steering", "z", "z", "app.steer('freeze')", "freeze"),
        "Freeze the trial now, its sandbox's processes too, or resume it",
        bar=5,
    ),
    Key(
        *("stop", "steering", "s", "s", "app.steer('stop')", "stop"),
        "End the trial at the end of its turn and verify what it has done",
        bar=1,
    ),
    Key(
        *("cancel", "steering", "x", "x", "app.steer('cancel')", "cancel"),
        "End the trial now, without verdict; asks first",
        bar=3,
    ),
    Key(
        *("retry", "steering", "r", "r", "app.steer('retry')", "retry"),
        "Give this attempt up and start a fresh one in its place; asks first if it runs",
        bar=4,
    ),
    Key(
        *("exclude", "steering", "e", "e", "app.steer('exclude')", "exclude"),
        "Leave the trial out of training and of its group's baseline, or take that back",
        bar=5,
    ),
    Key(
        *("follow", "cockpit", "f", "f", "app.follow", "follow"),
        "Let the selection follow what happens; any choice of yours ends that",
    ),
    Key(
        *("pause-run", "everywhere", "P", "P", "app.pause_run", "pause run"),
        "Pause every trial at the end of its turn and start none, or resume the run",
        bar=5,
    ),
    Key("pane-1", "cockpit", "1", "1", "full(1)", "tasks", "Tasks in full", bar=2),
    Key(
        "pane-2",
        "cockpit",
        "2",
        "2",
        "full(2)",
        "terminal",
        "The selected terminal in full",
        bar=2,
    ),
    Key("pane-3", "cockpit", "3", "3", "full(3)", "tokens", "Tokens in full", bar=2),
    Key(
        "pane-4",
        "cockpit",
        "4",
        "4",
        "full(4)",
        "curves",
        "Rewards, pass rate, alarms and notes in full",
        bar=2,
    ),
    Key("pane-5", "cockpit", "5", "5", "full(5)", "queue", "Queue and processes in full", bar=2),
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
    Key(
        *("attempt", "trial", "a", "a", "attempt", "attempt"),
        "The next attempt at this trial's place in its group; after the last the first",
        bar=3,
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
        bar=4,
    ),
    Key(
        *("thinking", "trial", "o", "o", "thinking", "thinking"),
        "Open or fold what the model thought before it answered",
    ),
    Key(
        *("next-surprise", "trial", "n", "n", "surprise(1)", "surprise"),
        "Jump to the next surprising token",
        bar=4,
    ),
    Key(
        *("previous-surprise", "trial", "N", "N", "surprise(-1)", "surprise"),
        "Jump to the surprising token before",
    ),
    Key("trial-1", "trial", "1", "1", "full(1)", "terminal", "Terminal in full", bar=2),
    Key("trial-2", "trial", "2", "2", "full(2)", "turns", "Turns in full", bar=2),
    Key("trial-3", "trial", "3", "3", "full(3)", "tokens", "Tokens in full", bar=2),
    Key("trial-4", "trial", "4", "4", "full(4)", "facts", "Time, group, attempts in full", bar=2),
    Key("turn-up", "turns", "up,k", "↑ k", "step(-1)", "up", "The turn before", palette=False),
    Key("turn-down", "turns", "down,j", "↓ j", "step(1)", "down", "The turn after", palette=False),
    Key(
        *("commands", "everywhere", "c", "c", "app.commands_given", "asked"),
        "Who asked for what, when and why, and what came of it",
        bar=5,
    ),
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
        bar=1,
    ),
    Key(
        *("quit", "everywhere", "q", "q", "app.leave", "quit"),
        "Leave; a live run is stopped and cleaned up first, if you say so",
        bar=1,
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
    """The keys of the scopes, in the table's order."""
    return [key for key in KEYS if key.scope in scopes]
