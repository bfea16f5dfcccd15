"""A random walk through the app: keys, clicks, pastes and resizes nobody would think of.

What is done is plain data, so that a walk that ends badly can be walked again and made shorter.
For hours of it: `python -m tests.benchmarks.walk --seconds 3600`.
"""

from __future__ import annotations

import asyncio
import json
import random
import string
import unicodedata
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from textual import events
from textual.geometry import Size
from textual.keys import REPLACED_KEYS, _character_to_key, _get_unicode_name_from_key
from textual.widget import Widget
from textual.widgets import Input

from tbtui.ui.application import TbtuiApp
from tbtui.ui.input.keys import KEYS
from tbtui.ui.panes.pane import Pane
from tbtui.ui.screens.base import SMALLEST
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.dialogs import ConfirmDialog, Dialog, LeaveDialog, PlaceDialog, ReasonDialog
from tbtui.ui.screens.typing import TypingScreen
from tbtui.view.current import last_attempt
from tests.ui.hostile import HOSTILE
from tests.ui.worlds import WORLDS, World

Action = tuple[Any, ...]
"""What is done, and with what: as JSON has it."""

LEAVING = frozenset({"q", "ctrl+c", "ctrl+q"})
STROKES = sorted({stroke for key in KEYS for stroke in key.keys.split(",")} - LEAVING)
MOVES = (
    *("up", "down", "left", "right", "enter", "escape", "tab", "shift+tab", "space"),
    *("home", "end", "pageup", "pagedown", "backspace", "delete", "ctrl+backslash", "ctrl+u"),
)
WORDS = (
    *("copy", "solved", "failed", "1", "0.5", "-1", "nan", "1e999", "50%", "step 2", "0:20"),
    *("pass:<.5", "kind:copy", "tries:none", "is:selected", "colour:red", "-", ":", "theme"),
    *("notes", "README", "a/b", "~", "x" * 300),
)
SIZES = ((20, 8), (59, 15), (60, 16), (80, 24), (109, 31), (110, 32), (150, 45), (200, 60))
_ROOM_FOR_ALL = (80, 24)
"""In a smaller window the lowest panes are cut off."""
HOME_EVERY = 25
"""Actions, after which the way back is tried."""


class WalkError(AssertionError):
    """Something that has to hold whatever people do doesn't."""


@dataclass
class Walk:
    """One walk through the app over one world."""

    world: World
    done: list[Action]

    @property
    def app(self) -> TbtuiApp:
        return self.world.app

    async def wander(self, rng: random.Random, actions: int) -> None:
        """Do this many things at random."""
        for number in range(1, actions + 1):
            await self.act(("home",) if number % HOME_EVERY == 0 else self._any_action(rng))
            if self.left:
                return
        await self.act(("home",))

    async def follow(self, actions: Iterable[Action]) -> None:
        """Do these."""
        for action in actions:
            await self.act(action)
            if self.left:
                return

    @property
    def left(self) -> bool:
        """A click on the key bar, or the command palette, leaves too."""
        return self.app._exit

    async def act(self, action: Action) -> None:
        """Do it, wait for what comes of it, and look whether all is well."""
        self.done.append(action)
        before = _Before.of(self)
        async with asyncio.timeout(60):
            await self._do(action)
            await self.rest()
        if self.left:
            return
        self._check_commands(action, before)
        await self._check_screen()

    async def rest(self) -> None:
        """Until every message has been handled."""
        await rest(self.app)

    # What can be done

    def _any_action(self, rng: random.Random) -> Action:
        kinds = {
            self._a_key_of_the_screen: 40,
            self._a_key: 12,
            self._a_move: 16,
            self._keys_at_once: 4,
            self._text: 4,
            self._paste: 3,
            self._click: 10,
            self._drag: 2,
            self._wheel: 3,
            self._size: 4,
            self._event: 12,
        }
        (chosen,) = rng.choices(list(kinds), list(kinds.values()))
        return chosen(rng)

    def _a_key_of_the_screen(self, rng: random.Random) -> Action:
        screen = self.app.screen
        nodes = (screen.focused or screen).ancestors_with_self
        strokes = {
            stroke
            for node in nodes
            if not isinstance(node, Input | TbtuiApp)
            for _, binding in node._bindings
            for stroke in binding.key.split(",")
        } - LEAVING
        # Each of ours and Textual's alike; a pane's own ones are few among the screen's.
        return ("press", rng.choice(sorted(strokes)) if strokes else "escape")

    def _a_key(self, rng: random.Random) -> Action:
        return ("press", rng.choice(STROKES))

    def _a_move(self, rng: random.Random) -> Action:
        return ("press", rng.choice(MOVES))

    def _keys_at_once(self, rng: random.Random) -> Action:
        """Pressed before anything has come of the first: the same ones again, most of the time."""
        keys = [rng.choice(STROKES), rng.choice(MOVES)] if rng.random() < 0.5 else []
        return ("press", *(keys or [rng.choice((*STROKES, *MOVES))] * rng.randint(2, 4)))

    def _text(self, rng: random.Random) -> Action:
        word = rng.choice(WORDS) if rng.random() < 0.7 else rng.choice(string.printable[:-6])
        return ("type", word)

    def _paste(self, rng: random.Random) -> Action:
        return ("paste", rng.choice(HOSTILE)[: rng.choice((1, 50, 100_000))])

    def _click(self, rng: random.Random) -> Action:
        return ("click", *self._place(rng), rng.choice((1, 1, 1, 2, 3)))

    def _drag(self, rng: random.Random) -> Action:
        return ("drag", *self._place(rng), *self._place(rng))

    def _wheel(self, rng: random.Random) -> Action:
        return ("wheel", *self._place(rng), rng.choice(("up", "down", "left", "right")), 3)

    def _size(self, rng: random.Random) -> Action:
        if rng.random() < 0.5:
            return ("resize", rng.randint(20, 300), rng.randint(8, 100))
        return ("resize", *rng.choice(SIZES))

    def _event(self, rng: random.Random) -> Action:
        return self.world.any_event(rng)

    def _place(self, rng: random.Random) -> tuple[int, int]:
        """On something that is there, or anywhere."""
        width, height = self.app.size
        if rng.random() < 0.3:
            return rng.randrange(width), rng.randrange(height)
        screen = self.app.screen
        regions = [each.region for each in screen.query(Widget) if each.display and each.region]
        region = rng.choice(regions or [screen.region]).intersection(screen.region)
        if not region:
            return rng.randrange(width), rng.randrange(height)
        return rng.randrange(region.x, region.right), rng.randrange(region.y, region.bottom)

    # Doing it

    async def _do(self, action: Action) -> None:
        what, *given = action
        match what:
            case "press":
                for key in given:
                    self._send(key_event(key))
            case "type":
                for character in given[0]:
                    self._send(key_event(character))
            case "paste":
                self._send(events.Paste(given[0]))
            case "click":
                x, y, times = given
                for _ in range(times):
                    self._mouse(events.MouseDown, x, y, 1)
                    self._mouse(events.MouseUp, x, y, 1)
            case "drag":
                x, y, to_x, to_y = given
                self._mouse(events.MouseDown, x, y, 1)
                for part in (0.25, 0.5, 0.75, 1.0):
                    at = round(x + part * (to_x - x)), round(y + part * (to_y - y))
                    self._mouse(events.MouseMove, *at, 1)
                self._mouse(events.MouseUp, to_x, to_y, 1)
            case "wheel":
                x, y, where, turns = given
                for _ in range(turns):
                    self._mouse(_WHEEL[where], x, y)
            case "resize":
                size = Size(*given)
                driver = self.app._driver
                assert driver is not None
                driver._size = (size.width, size.height)
                self._send(events.Resize(size, size))
            case "home":
                await self._home()
            case _:
                selected = self._selected()
                await self.world.happen(action)
                self.app.tick()
                await self.rest()
                if selected is not None:
                    self._check_selection(selected)

    def _send(self, event: events.Event) -> None:
        driver = self.app._driver
        assert driver is not None
        event.set_sender(self.app)
        driver.send_message(event)

    def _mouse(self, kind: type[events.MouseEvent], x: int, y: int, button: int = 0) -> None:
        # The window may have become smaller, where the walk is a part of another.
        x, y = min(x, self.app.size.width - 1), min(y, self.app.size.height - 1)
        at = {"x": x, "y": y, "screen_x": x, "screen_y": y}
        self._send(
            kind(
                **{"widget": None, **at, "delta_x": 0, "delta_y": 0, "button": button},
                **{"shift": False, "meta": False, "ctrl": False},
            )
        )

    async def _home(self) -> None:
        """From wherever it is, a few times the way back leads to the cockpit."""
        seen = []
        for _ in range(3 * len(self.app.screen_stack) + 4):
            screen = self.app.screen
            if isinstance(screen, Cockpit) and not screen.full:
                return
            seen.append(type(screen).__name__)
            typing = isinstance(screen, TypingScreen) and screen.typing
            self._send(key_event("ctrl+backslash" if typing else "escape"))
            await self.rest()
            self.app.tick()
            await self.rest()
            if self.left:
                return
        raise WalkError(f"no way back to the cockpit: {' '.join(seen)}")

    # What has to hold

    def _selected(self) -> str | None:
        """What is selected in the cockpit, where somebody chose it."""
        app = self.app
        if app.selection.following or app.opened_trial is not None:
            return None
        frame = app.frames.frame()
        return frame.selected.trial if frame.selected else None

    def _check_selection(self, before: str) -> None:
        after = self._selected()
        frame = self.app.frames.frame()
        heir = last_attempt(before, frame.state.trials)
        shown = {trial.trial for trial in frame.listed}
        if after != heir and heir in shown:
            raise WalkError(f"{before} was selected; {after} is, though nobody chose it")

    def _check_commands(self, action: Action, before: _Before) -> None:
        new = len(self.world.commands) - before.commands
        if isinstance(before.screen, TypingScreen):
            return  # what is typed goes in as many commands as it takes
        dialog, keys = before.screen, action[1:]
        if action[0] != "press" or len(keys) != 1:
            if action[0] in ("resize", "wheel", "paste", "advance") and new:
                raise WalkError(f"{action} asked the run for something")
            return
        if new > 1:
            raise WalkError(f"{action} asked the run for {new} things")
        if isinstance(dialog, Dialog) and keys == ("escape",) and new:
            raise WalkError("what was called off was asked for all the same")
        asks = isinstance(dialog, ConfirmDialog | ReasonDialog)
        if not asks or isinstance(dialog, LeaveDialog | PlaceDialog) or before.refusal:
            return
        said = keys == (("y",) if isinstance(dialog, ConfirmDialog) else ("enter",))
        if said and new != 1:
            raise WalkError(f"{type(dialog).__name__} was confirmed and asked for {new} things")

    async def _check_screen(self) -> None:
        for patience in range(6):
            if (trouble := self._trouble()) is None:
                return
            # What a thread reads, or a timer draws, may not be there yet.
            await asyncio.sleep(0.02 * patience)
            await self.rest()
        raise WalkError(trouble)

    def _trouble(self) -> str | None:
        """What is wrong with what is on the screen."""
        app = self.app
        if app._exception is not None:
            raise app._exception
        width, height = app.size
        screen = app.screen
        if screen.size != app.size:
            return f"{screen} has {screen.size}, the window {app.size}"
        strips = screen._compositor.render_strips()
        if len(strips) != height:
            return f"{len(strips)} rows in a window of {height}"
        for number, strip in enumerate(strips):
            if strip.cell_length != width or cell_len(strip.text) != width:
                return f"row {number} has {strip.cell_length} cells of {width}: {strip.text!r}"
            if not strip.text.isprintable():
                return f"row {number} is no plain text: {strip.text!r}"
        for pane in screen.query(Pane):
            if not pane.is_on_screen or not pane.region:
                continue
            inside = screen.region.contains_region(pane.region)
            if not inside and width >= _ROOM_FOR_ALL[0] and height >= _ROOM_FOR_ALL[1]:
                return f"{pane} at {pane.region} is not within {screen.region}"
            room = pane.scrollable_content_region.width
            if not pane.scrollable_content_region.size:
                continue  # none of its rows can be seen: they are not drawn anew
            for row in pane.text.splitlines():
                if cell_len(row) > room:
                    return f"{pane} has {room} cells for {row!r}"
        if isinstance(screen, Dialog) and width >= SMALLEST[0] and height >= SMALLEST[1]:
            for widget in screen.query(Widget):
                if widget.focusable and widget.display and not _in_sight(widget):
                    return f"{widget} at {widget.region} can't be seen in {app.size}"
        return None


def _in_sight(widget: Widget) -> bool:
    """Or can be scrolled to."""
    around = widget.ancestors
    scrolls = any(isinstance(each, Widget) and each.max_scroll_y > 0 for each in around)
    return scrolls or bool(widget.screen.region.intersection(widget.region))


@dataclass(frozen=True)
class _Before:
    """How things stood before something was done."""

    screen: object
    commands: int
    refusal: str

    @classmethod
    def of(cls, walk: Walk) -> _Before:
        app = walk.app
        return cls(app.screen, len(walk.world.commands), app.shown.refusal)


_WHEEL: dict[str, type[events.MouseEvent]] = {
    "up": events.MouseScrollUp,
    "down": events.MouseScrollDown,
    "left": events.MouseScrollLeft,
    "right": events.MouseScrollRight,
}


def key_event(key: str) -> events.Key:
    """As a terminal's driver makes it of what was pressed."""
    if len(key) == 1 and not key.isalnum():
        key = _character_to_key(key)
    character: str | None
    try:
        name = _get_unicode_name_from_key(REPLACED_KEYS.get(key, key))
        character = unicodedata.lookup(name)
    except KeyError:
        character = key if len(key) == 1 else None
    return events.Key(key, character)


async def rest(app: TbtuiApp) -> None:
    """Until no message waits anywhere, for as long as the loop takes to go round some times."""
    quiet = 0
    while quiet < 12 and not app._exit:
        await asyncio.sleep(0.001 if quiet == 6 else 0)
        busy = any(node.message_queue_size for node in list(app._registry))
        quiet = 0 if busy or app.message_queue_size else quiet + 1
        if app._exception is not None:
            raise app._exception
    if app.screen_stack:
        app.screen._on_timer_update()


Steps = Callable[[Walk], Awaitable[None]]


def wandering(seed: int, actions: int) -> Steps:
    return lambda walk: walk.wander(random.Random(seed), actions)


def following(actions: Iterable[Action]) -> Steps:
    return lambda walk: walk.follow(actions)


async def walk(kind: str, directory: Path, steps: Steps) -> None:
    """Walk through the app over a new world of this kind, and see to it that no trace is left
    where none may be. What was done is an error's last note, as JSON."""
    world = WORLDS[kind](directory)
    done: list[Action] = []
    try:
        before = world.untouched()
        async with world.app.run_test(size=(120, 40), notifications=True):
            world.app.tick()
            await rest(world.app)
            await steps(Walk(world, done))
        if changed := {file for file, _ in before.items() ^ world.untouched().items()}:
            raise WalkError(f"a recorded run was written to: {sorted(changed)}")
        world.check()
    except Exception as error:
        error.add_note(json.dumps(done))
        raise
    finally:
        world.close()
