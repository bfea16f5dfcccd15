"""Goes to anything by its name: finds it in the shown run or in the app, and opens it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from tbtui.journal.database import JournalError
from tbtui.resources import guide_sections
from tbtui.ui.input.abilities import perform
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.view.current import current_trials
from tbtui.view.targets import Target, TrialIndex, state_targets

if TYPE_CHECKING:
    from tbtui.journal.rundir import RunDirectory
    from tbtui.ui.context import ControllerContext
    from tbtui.ui.services import SettingEntry


class Jumps:
    """Finds and opens what is chosen in the box that `:` opens."""

    def __init__(self, app: ControllerContext) -> None:
        self._app = app
        self._indexes: dict[RunDirectory, TrialIndex] = {}
        """What has been read of each run's journal: it is read on from there the next time."""

    def ask(self, text: str = "") -> None:
        """Open the box, with a text in it."""
        from tbtui.ui.screens.jump import JumpScreen

        app = self._app
        known = [*state_targets(app.live_run.state), *self._commands(), *self._themes()]
        run = app.live_run.directory
        app.push_screen(JumpScreen(known, lambda: self._read(run), text), self._go)

    def _commands(self) -> Iterator[Target]:
        for key in self._app.keys_here():
            if key.palette:
                yield Target("command", key.id, key.label, f"{key.shown} · {key.help}")

    def _themes(self) -> Iterator[Target]:
        for name in self._app.theme_names:
            yield Target("theme", name, name, "Use this theme")

    async def _read(self, run: RunDirectory) -> Sequence[Target]:
        """What is read on a thread: the journal's trials, the settings and the guide's sections."""
        settings = self._app.services.settings
        entries: Sequence[SettingEntry] = ()
        if settings is not None:
            entries = (await asyncio.to_thread(settings)).entries
        found = [
            Target("setting", each.name, each.name, f"{each.heading} · {each.meaning}")
            for each in entries
        ]
        found += await asyncio.to_thread(lambda: list(_pages()))
        index = self._indexes.setdefault(run, TrialIndex())
        try:
            return [*await asyncio.to_thread(_read_index, run, index), *found]
        except JournalError as error:
            self._app.notify(str(error), severity="warning")
            return found

    def _go(self, target: Target | None) -> None:
        if target is None:
            return
        app = self._app
        match target.kind:
            case "trial":
                self._open(target.id)
            case "group":
                self._open_group(target.id)
            case "task":
                self._show_task(target.id)
            case "step" if app.live_run.replay is not None:
                self._cockpit()
                app.transport.to_step(int(target.id))
            case "step":
                self.ask(f"s{target.id} ")
            case "setting":
                app.show_settings(target.id)
            case "metric":
                app.show_chart(target.id)
            case "command":
                key = app.user.keys.entry(target.id)
                app.run_worker(perform(app.screen, key), name="jump")
            case "guide":
                app.show_guide(target.id)
            case "theme":
                app.use_theme(target.id)

    def _cockpit(self) -> Cockpit:
        """Go back to the cockpit."""
        app = self._app
        while not isinstance(app.screen, Cockpit):
            app.pop_screen()
        return app.screen

    def _reach(self, trial: str) -> None:
        """Move a replay's clock to a trial's end, unless what is shown has it already."""
        replay = self._app.live_run.replay
        if replay is not None and trial not in replay.state.trials:
            replay.playback.playing = False
            replay.playback.go_to(replay.span(trial)[1])
            self._app.moved()

    def _open(self, trial: str) -> None:
        self._reach(trial)
        self._app.show_trial(trial)

    def _open_group(self, group: str) -> None:
        from tbtui.ui.screens.group import GroupScreen

        run = self._app.live_run
        members = self._indexes[run.directory].members(group)
        self._reach(members[0])
        kept = next((each for each in members if each in run.state.trials), None)
        if kept is None:
            # Only the journal has its trials: each can be opened by itself.
            self._open(members[0])
        else:
            self._app.push_screen(GroupScreen(kept))

    def _show_task(self, name: str) -> None:
        """Show a task's trials in the cockpit; one without any now, in the task browser."""
        app = self._app
        here = any(trial.task == name for trial in current_trials(app.live_run.state))
        if not here and app.services.library is not None:
            app.browse_tasks(name)
            return
        self._cockpit()
        if app.listing.filter.task != name:
            app.listing.by_task(task=name)
        app.redraw_all()


def _read_index(run: RunDirectory, index: TrialIndex) -> Sequence[Target]:
    from tbtui.journal.reader import JournalReader

    if not run.database.is_file():
        return []
    with closing(JournalReader(run, lenient=True)) as reader:
        return index.read_on(reader)


def _pages() -> Iterator[Target]:
    for page, heading, anchor in guide_sections():
        name = f"{page}: {heading}" if heading else page
        yield Target("guide", f"{page}#{anchor}" if anchor else page, name)
