"""The guided tour of a run's first minute: six stops, each done on a real trial.

A stop waits for the person and for what it talks about; nothing in it is shown before it is true.
The run goes on meanwhile, and every key keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

from tbtui.journal.commands import RUN, Command
from tbtui.journal.verbs import meant
from tbtui.ui.drawing.text import visible
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.view.standing import standing
from tbtui.view.state import RunState, TrialView
from tbtui.vocabulary import RunPhase

if TYPE_CHECKING:
    from tbtui.ui.context import ControllerContext


@dataclass(frozen=True, slots=True)
class Scene:
    """The state of run and screen that the tour looks at."""

    state: RunState
    keys: Mapping[str, str]
    """Id of a key -> what people call it."""
    selected: TrialView | None
    """The trial that keys act on."""
    trial: TrialView | None
    """The trial that the person has paused on the tour."""
    chosen: bool
    """The person has chosen a trial, and the selection follows no others."""
    opened: bool
    """A trial is open."""
    group: bool
    """A group is open."""

    @property
    def lost(self) -> bool:
        """Whether the paused trial has ended, or its agent goes on."""
        return self.trial is None or not self.trial.live or not self.trial.hold.paused


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop of the tour: one thing to try."""

    title: str
    text: Callable[[Scene], str]
    """What there is to see now."""
    ask: Callable[[Scene], str]
    """What to do now."""
    done: Callable[[Scene], bool]
    needs_trial: bool = False
    """It is about the trial that was paused: without it, the tour goes back to pausing one."""
    steers: bool = True
    """It makes no sense in a run that is over."""


def _trials(scene: Scene) -> str:
    state = scene.state
    if not state.trials:
        return "The model is being loaded. Then trials begin, each in a sandbox of its own."
    tile = "Each tile is a trial: one attempt of the model at one task, in a real terminal."
    if state.phase is RunPhase.EVALUATING and not state.step:
        return f"{tile} These are held-out tasks: the model is measured before it is trained."
    size = state.settings.get("group_size", 0)
    return (
        f"{tile} {size} trials of one task are a group; what went better than its mean is learned."
    )


def _ask_to_pause(scene: Scene) -> str:
    trial, pause = scene.selected, scene.keys["pause"]
    if trial is None:
        return "Wait for a trial."
    if trial.pending == "pause":
        return f"{trial.label} pauses at the end of its turn: wait for it."
    if meant("pause", standing(trial, scene.state))[1]:
        return f"{trial.label} is over: {scene.keys['follow']} goes to one that runs; then {pause}."
    when = "first turn" if trial.phase == "queued" else "end of its turn"
    return f"Press {pause}: {trial.label} pauses at the {when}."


def _ask_to_open(scene: Scene) -> str:
    if scene.opened:
        return f"Press {scene.keys['back']}, choose {_label(scene)} and open it."
    if scene.selected is scene.trial:
        return f"Press {scene.keys['open']} until it opens; the first may unfold its group."
    return f"Choose {_label(scene)} and press {scene.keys['open']} until it opens."


def _ask_to_give_back(scene: Scene) -> str:
    assert scene.trial is not None
    if not scene.trial.hold.typist:
        return f"Press {scene.keys['pause']}: the agent goes on."
    return f"Type, then press {scene.keys['give-back']}: the agent gets its terminal back."


def _group(scene: Scene) -> str:
    if scene.group:
        return (
            "Siblings stand side by side, with the token at which each diverges; below"
            " are reward, baseline, advantage and share of the gradient."
        )
    return _what_came_of_it(scene) + (
        "All trials of one task in a step are a group. A trial's advantage is its reward less the"
        " group's mean: that is what the model learns from."
    )


def _what_came_of_it(scene: Scene) -> str:
    """How the trial ended that the person has typed in."""
    trial = scene.trial
    if trial is None or trial.outcome is None or not trial.touched:
        return ""
    aside = "; not trained on, because you typed in it" if trial.left_out is not None else ""
    return f"Yours, {trial.label}: {trial.outcome.replace('_', ' ')}{aside}. "


def _ask_for_group(scene: Scene) -> str:
    if scene.group:
        return f"Press {scene.keys['leave-group']} to go back: that is the end of the tour."
    return f"Press {scene.keys['group']} on any trial: its group opens."


def _label(scene: Scene) -> str:
    return scene.trial.label if scene.trial is not None else "the trial"


STOPS: tuple[Stop, ...] = (
    Stop(
        "trials",
        _trials,
        lambda scene: "Choose one with the arrow keys." if scene.state.trials else "Wait for them.",
        lambda scene: scene.chosen,
        steers=False,
    ),
    Stop(
        "pause",
        lambda scene: "You can pause any trial: its clocks stop, all others go on.",
        _ask_to_pause,
        lambda scene: not scene.lost,
    ),
    Stop(
        "look inside",
        lambda scene: (
            f"{_label(scene)} is paused. Inside are its terminal, what the model wrote in each"
            " turn, and each token's log-probability."
        ),
        _ask_to_open,
        lambda scene: scene.opened and scene.selected is scene.trial,
        needs_trial=True,
    ),
    Stop(
        "take over",
        lambda scene: (
            "You can type in its terminal yourself, as the agent does. A trial in which a person"
            " typed is not trained on."
        ),
        lambda scene: f"Press {scene.keys['take-over']}: the terminal is yours.",
        lambda scene: scene.trial is not None and bool(scene.trial.hold.typist),
        needs_trial=True,
    ),
    Stop(
        "give back",
        lambda scene: "Try ls and enter. Every key is recorded as yours.",
        _ask_to_give_back,
        lambda scene: scene.lost,
    ),
    Stop("what is learned", _group, _ask_for_group, lambda scene: False, steers=False),
)


_WAITING_SEC = 15.0
"""How long each turn stands while the tour waits for a trial to be paused."""
_PAUSING = 1
"""The stop at which a trial is paused, which the next ones are about."""


def _held(state: RunState, selected: TrialView | None) -> TrialView | None:
    """A trial that a person paused, the selected one before others."""
    if state.paused:
        return None
    held = [trial for trial in state.live_trials() if trial.hold.paused]
    return selected if selected in held else next(iter(held), None)


class TourPanel(Static):
    """The stop, in a few lines below the screen."""


class Tour:
    """Where the person is on the tour; `look` at every frame."""

    def __init__(self, app: ControllerContext, selected: Callable[[], TrialView | None]) -> None:
        self._app = app
        self._selected = selected
        self._stop = 0
        self._trial = ""
        self._group_seen = False
        self._pace_before: float | None = None
        """Seconds a turn before the tour asked for more; None: it hasn't yet, 0: it is over."""
        self._shown: tuple[LiveScreen, Content, str] | None = None
        self.on = True

    def look(self) -> None:
        """Go to the next stop if this one's request is done, and show the stop."""
        if not self.on or self._app.shown is not self._app.own:
            # While another run is on the screen it waits.
            return
        scene = self._scene()
        self._wait_for_person(scene.state)
        self._group_seen = self._group_seen or (scene.group and self._last)
        if self._last and self._group_seen and not scene.group:
            self.end()
            return
        self._follow(scene)
        self._show(scene)

    def skip(self) -> None:
        """Go to the next stop that can be made: without a paused trial, past those that are about
        one; from the last one, end."""
        if self._last:
            self.end()
            return
        lost = self._scene().lost
        self._stop += 1
        while lost and STOPS[self._stop].needs_trial:
            self._stop += 1
        self.look()

    def end(self) -> None:
        """End the tour."""
        self.on = False
        self._restore_pace()
        for screen in self._app.screen_stack:
            screen.query(TourPanel).remove()
            screen.remove_class("-tour")

    def _wait_for_person(self, state: RunState) -> None:
        """A run that is slowed down for people goes slower until a trial has been paused."""
        pace = state.settings.get("pace_sec")
        if self._stop > _PAUSING:
            self._restore_pace()
        elif self._pace_before is None and pace and not state.step:
            self._pace_before = pace
            self._submit(_WAITING_SEC)

    def _restore_pace(self) -> None:
        # Who has asked for full speed meanwhile keeps it.
        if self._pace_before and self._app.own.run.state.settings.get("pace_sec"):
            self._submit(self._pace_before)
        self._pace_before = 0.0

    def _submit(self, seconds: float) -> None:
        change = Command("set", RUN, "tour", arguments={"pace_sec": seconds})
        self._app.own.host.submit(change)

    @property
    def _last(self) -> bool:
        return self._stop == len(STOPS) - 1

    def _follow(self, scene: Scene) -> None:
        stop = STOPS[self._stop]
        over = bool(self._app.shown.refusal)
        if stop.done(scene) or (over and stop.steers):
            self._stop += 1
            self._follow(self._scene())
        elif stop.needs_trial and scene.lost and not (scene.trial and scene.trial.hold.typist):
            self._stop, self._trial = _PAUSING, ""

    def _scene(self) -> Scene:
        app = self._app
        state, screen, selected = app.live_run.state, app.screen, self._selected()
        if not self._trial and self._stop == _PAUSING and (held := _held(state, selected)):
            self._trial = held.trial
        return Scene(
            state=state,
            keys={key.id: key.shown for key in app.user.keys.keys},
            selected=selected,
            trial=state.trials.get(self._trial),
            chosen=not app.selection.following,
            opened=app.opened_trial is not None,
            group=isinstance(screen, LiveScreen) and "group" in screen.SCOPES,
        )

    def _show(self, scene: Scene) -> None:
        screen = self._app.screen
        if not isinstance(screen, LiveScreen) or not screen.is_mounted:
            return
        stop = STOPS[self._stop]
        # All keys go to a terminal that is typed in.
        ends = "ends the tour" if self._last else "next stop"
        leaves = "" if screen.typing else f"{scene.keys['tour']} {ends}"
        if isinstance(screen, Cockpit) and not self._last:
            leaves += f" · {scene.keys['overview']} ends the tour"
        content = Content("\n").join(
            [
                Content(visible(stop.text(scene))),
                Content.styled(visible(f"▸ {stop.ask(scene)}"), "bold $accent"),
            ]
        )
        panels = screen.query(TourPanel)
        if panels and self._shown == (screen, content, leaves):
            return
        self._shown = screen, content, leaves
        panel = panels.first() if panels else TourPanel()
        panel.border_title = Content(f"tour {self._stop + 1} of {len(STOPS)}: {stop.title}")
        panel.border_subtitle = Content(visible(leaves))
        panel.update(content)
        if not panels:
            screen.add_class("-tour")
            screen.mount(panel)
