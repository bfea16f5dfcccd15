"""A person types in a trial's terminal: from the request to take it over until it is given back."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar, override

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message

from tbtui.journal.commands import MAX_TYPED_BYTES, MAX_TYPED_PARTS, Typed, to_arguments
from tbtui.ui.context import app_of, run_app_of
from tbtui.ui.drawing.text import visible
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import TrialHead
from tbtui.ui.panes.pane import Frame, Redraw
from tbtui.ui.panes.terminal import TerminalPane
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.theme.glyphs import TYPIST_MARK
from tbtui.view.state import CommandView, RunState
from tbtui.vocabulary import CommandVerb

_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "enter": "Enter",
        "tab": "Tab",
        "backspace": "BSpace",
        "escape": "Escape",
        "space": "Space",
        "up": "Up",
        "down": "Down",
        "left": "Left",
        "right": "Right",
        "home": "Home",
        "end": "End",
        "insert": "IC",
        "delete": "DC",
        "pageup": "PPage",
        "pagedown": "NPage",
        "at": "@",
        "backslash": "\\",
        "right_square_bracket": "]",
        "left_square_bracket": "[",
        "circumflex_accent": "^",
        "underscore": "_",
        "slash": "/",
        **{f"f{number}": f"F{number}" for number in range(1, 13)},
    }
)
_MODIFIERS: Mapping[str, str] = MappingProxyType({"ctrl": "C-", "alt": "M-", "shift": "S-"})


def typed_key(key: str, character: str | None) -> Typed | None:
    """Translate one key; None: there is nothing that tmux could send.

    `key` and `character` are those of Textual's event.
    """
    if character is not None and character.isprintable():
        return Typed("text", character)
    *modifiers, name = key.split("+")
    if (key, name) in (("shift+tab", "tab"), ("ctrl+at", "at")):
        return Typed("key", "BTab" if name == "tab" else "C-Space")
    plain = _NAMES.get(name, name if len(name) == 1 and "!" <= name <= "~" else "")
    if not plain or not set(modifiers) <= _MODIFIERS.keys():
        return None
    return Typed("key", "".join(_MODIFIERS[modifier] for modifier in modifiers) + plain)


def pasted(text: str) -> Iterator[Typed]:
    """Split a paste into parts that each fit into a command."""
    # An escape sequence could end the brackets around it, and no person means to paste one.
    text = "".join(char for char in text if char in "\n\r\t" or char.isprintable())
    text = text.encode(errors="ignore").decode()
    most = MAX_TYPED_BYTES if text.isascii() else MAX_TYPED_BYTES // 4
    for start in range(0, len(text), most):
        yield Typed("paste", text[start : start + most])


def commands(parts: list[Typed]) -> Iterator[list[Typed]]:
    """Pack parts into as few commands as hold them; text beside text is joined."""
    batch: list[Typed] = []
    size = 0
    for part in parts:
        length = len(part.text.encode())
        if (batch and size + length > MAX_TYPED_BYTES) or len(batch) == MAX_TYPED_PARTS:
            yield batch
            batch, size = [], 0
        if batch and part.kind == batch[-1].kind == "text":
            batch[-1] = Typed("text", batch[-1].text + part.text)
        else:
            batch.append(part)
        size += length
    if batch:
        yield batch


class TypingPane(TerminalPane):
    """A trial's terminal that takes all keys while it is `open`."""

    EVERY = 1

    class Entered(Message):
        """Keys, in the order in which they were pressed."""

        def __init__(self, parts: list[Typed]) -> None:
            super().__init__()
            self.parts = parts

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.open = False
        self._unsent: list[Typed] = []

    @property
    def _release(self) -> str:
        """The key that gives the trial back, as people name it."""
        return app_of(self).user.keys.name_of("give-back")

    def title(self, frame: Frame) -> str:
        trial = frame.selected
        if trial is None:
            return ""
        if self.open:
            return f"{TYPIST_MARK} you type in {trial.label} · {self._release} gives it back"
        return f"{trial.label} is yours once its turn ends · {self._release} calls it off"

    def key(self, frame: Frame) -> Hashable:
        return super().key(frame), self.open

    def show(self, frame: Frame) -> None:
        super().show(frame)
        trained = frame.state.settings.get("on_outcome", {}).get("human_touched") == "train"
        note = "and the trial is trained on" if trained else "and the trial is not trained on"
        self.border_subtitle = Content(visible(f"recorded as yours, {note}"))

    @override
    def check_consume_key(self, key: str, character: str | None) -> bool:
        # Textual looks for no binding of those that it says; it takes others as well.
        return self.open and character is not None and character.isprintable()

    def on_key(self, event: events.Key) -> None:
        if not self.open:
            return
        event.stop()
        event.prevent_default()
        if (part := typed_key(event.key, event.character)) is not None:
            self._enter([part])

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        if self.open:
            self._enter(list(pasted(event.text)))

    def _enter(self, parts: list[Typed]) -> None:
        # Keys that came together are sent together: after all that wait here by now.
        if not self._unsent:
            self.call_later(self._send)
        self._unsent += parts

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        for batch in commands(unsent):
            self.post_message(self.Entered(batch))


_LOOK_SEC = 0.02
"""How often the terminal is looked at for an echo."""
_LOOK_BUDGET_SEC = 0.005


class TypingScreen(LiveScreen):
    """Follows the journal: it opens when the trial is taken over, and leaves by itself
    when that was refused, or when another client has the trial."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("typing",)
    BINDINGS = bindings("typing")
    AUTO_FOCUS = "#typing"
    OVERVIEW = ("typing",)

    def __init__(self, trial: str, label: str, command: str) -> None:
        """`command` is the one that asks for the trial."""
        super().__init__()
        self.trial: str = trial
        self._label = label
        self._command = command
        self._echo = -1
        self._refused: set[str] = set()

    def compose_panes(self) -> ComposeResult:
        yield TrialHead("head")
        yield TypingPane("typing")

    @property
    @override
    def typing(self) -> bool:
        # None before it is mounted, nor while it is taken away.
        return any(pane.open for pane in self.query(TypingPane))

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(_LOOK_SEC, self._look)

    def _look(self) -> None:
        """Draw at once what the terminal answers; the app's own clock is slower."""
        run = run_app_of(self).live_run
        if not self.typing:
            return
        run.follow_terminals(self.trial, (), _LOOK_BUDGET_SEC)
        screen = run.recordings.screen(self.trial)
        if screen is not None and screen.version != self._echo:
            self._echo = screen.version
            self.post_message(Redraw())

    def show(self, frame: Frame, beat: int) -> None:
        pane = self.query_one(TypingPane)
        asked = self._asked(frame.state)
        trial = frame.state.trials.get(self.trial)
        pane.open = bool(asked and asked.ok and trial and trial.hold.typist)
        over = asked is not None and asked.ok is not None and not pane.open
        if over or run_app_of(self).shown.host.read_only or frame.ending:
            self.call_later(self._leave)
        self._tell_refused(frame.state)
        super().show(frame, beat)

    def _asked(self, state: RunState) -> CommandView | None:
        return next(
            (each for each in reversed(state.commands) if each.command == self._command), None
        )

    def _tell_refused(self, state: RunState) -> None:
        for each in reversed(state.commands):
            if each.command == self._command:
                return
            if (
                each.verb == "type"
                and each.target == self.trial
                and each.command not in self._refused
            ):
                self._refused.add(each.command)
                self.notify(each.result, title="not typed", severity="warning", markup=False)

    def _leave(self) -> None:
        # Under a dialog it stays, and leaves when that is closed.
        self.dismiss()

    def on_typing_pane_entered(self, event: TypingPane.Entered) -> None:
        run_app_of(self).steering.submit(
            "type", self.trial, self._label, arguments=to_arguments(event.parts)
        )

    def action_give_back(self) -> None:
        """Give the trial back, or call the take-over off if it isn't taken over yet."""
        verb: CommandVerb = "give_back" if self.typing else "resume"
        run_app_of(self).steering.submit(verb, self.trial, self._label)

    def action_call_off(self) -> None:
        """Call the take-over off, without waiting for what comes of it."""
        self.action_give_back()
        self._leave()
