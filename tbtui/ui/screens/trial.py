"""One trial: its terminal, its turns, its tokens, which move together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from textual.app import ComposeResult

from tbtui.errors import UserError
from tbtui.invocation import to_type
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.verbs import meant
from tbtui.paths import read_plain
from tbtui.ui.context import ScopedScreen, run_app_of
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import TrialHead
from tbtui.ui.panes.key_bar import KeyBar
from tbtui.ui.panes.pane import Frame, GrowingPane, Pane, Redraw
from tbtui.ui.panes.story import LINED, InstructionPane, TrialLines
from tbtui.ui.panes.terminal import TerminalPane
from tbtui.ui.panes.tokens import TokenPane, unlikely_tokens
from tbtui.ui.panes.trial_facts import TrialFactsPane, VerdictPane
from tbtui.ui.panes.turns import TurnPane
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.terminal.recordings import Scrub
from tbtui.ui.terminal.tty import copy, page
from tbtui.ui.textual_seam import Columns
from tbtui.view.current import attempts
from tbtui.view.exports import ExportFormat
from tbtui.view.standing import standing
from tbtui.view.transcript import command_tokens

_COPIED = {"terminal": "the terminal", "turns": "the turn", "tokens": "the tokens"}


class TrialScreen(LiveScreen):
    """Follows the newest turn until another is chosen.

    Whichever of terminal, turns and tokens is moved, the other two go along: the terminal shows
    the moment at which the chosen turn or command had had its effect, the tokens are that turn's.
    """

    SCOPES: ClassVar[tuple[Scope, ...]] = ("trial", "steering", "everywhere")
    BINDINGS = bindings("trial", "steering")
    AUTO_FOCUS = "#turns"
    OVERVIEW = ("turns", "terminal", "tokens")
    PANES: ClassVar[dict[int, tuple[str, ...]]] = {
        1: ("terminal",),
        2: ("turns",),
        3: ("tokens",),
        4: ("facts",),
        5: ("verdict",),
        6: ("task",),
    }
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {
        "upper": ("terminal", "turns"),
        "lower": ("tokens", "facts", "verdict", "task"),
    }

    def __init__(self, trial: str = "", turn: int | None = None) -> None:
        """Show this trial; without one, call `open_at` before it is shown."""
        super().__init__()
        self.open_at(trial, turn)
        self._version = -1
        self._rewound = 0
        """How often its run had gone back in time when the turns were read."""
        self._attempts: list[str] = []
        """All that are kept of this place, when there is more than this one."""
        self._frame: Frame | None = None
        """The last one shown."""
        self._at: float | None = None
        """The moment that the terminal was moved to; None: the chosen turn's."""
        self._picked = False
        """A person has chosen the turn that is shown, be it the newest."""
        self._recorded: tuple[str, Path | None] = ("", None)
        """Trial and run of the recording that is shown; empty: this trial's."""
        self._tokens_of = 0
        """Place of the turn whose tokens are shown."""
        self._looked_at: list[int | None] = []
        self._unlikely_found = False
        """Whether there is an unlikely token among these samples of its turns."""
        self._moves: int | None = None
        """How often the clock of a recorded run had been moved."""

    def open_at(self, trial: str, turn: int | None = None) -> None:
        """Show a trial, at a turn of the main agent or else at the newest."""
        self.trial: str = trial
        self._turn = turn

    def compose_panes(self) -> ComposeResult:
        yield TrialHead("head")
        yield TrialLines("lines")
        with Columns(id="upper"):
            yield TerminalPane("terminal", names_trial=False)
            yield TurnPane("turns")
        with Columns(id="lower"):
            yield TokenPane("tokens", follows_selection=False)
            yield TrialFactsPane("facts")
            yield VerdictPane("verdict")
            yield InstructionPane("task")
        yield KeyBar("keys", *self.SCOPES)

    def arranged(self) -> None:
        # In a very low window the turns need the rows more.
        self.query_one(TrialLines).display = self.room.height >= LINED
        if not self.full:
            # Its first line is above.
            self.query_one(InstructionPane).display = False
        if not self.full and not self.has_class("-wide"):
            # What the verifier wrote is below the turns, too.
            self.query_one(VerdictPane).display = False

    def show(self, frame: Frame, beat: int) -> None:
        turns = self.query_one(TurnPane)
        self._frame = frame
        if frame.run.rewound != self._rewound:
            self._rewound = frame.run.rewound
            self._version = -1
            turns.restart()
            self.query_one(TokenPane).load(frame, None)
        if frame.state.version != self._version:
            self._version = frame.state.version
            trial = frame.state.trials.get(self.trial)
            chain = [each.trial for each in attempts(trial, frame.state)] if trial else []
            self._attempts = chain if len(chain) > 1 else []
            if trial is None or trial.live or turns.transcript.finished is None:
                frame.run.read_on(self.trial, turns.transcript)
        if frame.run.replay is not None:
            moves = frame.run.replay.playback.moves
            if self._moves not in (None, moves):
                # A person who moves the clock wants to see its time.
                self._to_now()
            self._moves = moves
        if self._turn is not None and turns.transcript.turns:
            turns.choose_turn(self._turn)
            self._turn = None
        if turns.follow and turns.transcript.turns:
            turns.chosen = len(turns.transcript.turns) - 1
        self._show_tokens(frame)
        self.query_one(VerdictPane).transcript = turns.transcript
        self._show_terminal(frame)
        super().show(frame, beat)

    def _show_tokens(self, frame: Frame) -> None:
        turns, tokens = self.query_one(TurnPane), self.query_one(TokenPane)
        self._tokens_of = self._token_turn(turns)
        if turns.turn is not None:
            turn = turns.transcript.turns[self._tokens_of]
            tokens.load(frame, turn.sample)
            over = turns.transcript.finished is not None
            tokens.write(*(("", 0) if over else (turn.writing, turn.drawn)))
            span = None
            if turns.command is not None:
                pieces = [text for text, _ in tokens.tokens]
                span = command_tokens(pieces, turn.commands)[turns.command]
            tokens.span = span or range(0)

    def _token_turn(self, turns: TurnPane) -> int:
        """Place of the turn whose tokens are to be shown: the chosen one's, and where nobody has
        chosen one, of a trial that has ended those of its least likely turn."""
        every = turns.transcript.turns
        here = min(turns.chosen, max(0, len(every) - 1))
        tokens = self.query_one(TokenPane)
        tokens.of_least_likely = False
        if not turns.follow or not every:
            return here
        ended = turns.transcript.finished is not None and len(every) > 1
        if ended and not self._picked and (place := turns.transcript.least_likely) is not None:
            tokens.of_least_likely = True
            return place
        # While the policy has not begun to answer, its last answer stays.
        begun = (i for i in reversed(range(here + 1)) if every[i].sample or every[i].writing)
        return next(begun, here)

    def _show_terminal(self, frame: Frame) -> None:
        terminal = self.query_one(TerminalPane)
        turn = self.query_one(TurnPane).turn
        of = (turn.of, turn.run) if turn is not None and self._at is None else ("", None)
        if terminal.scrub is None or of != self._recorded:
            # A fork's terminal began at its fork: what it shares is in its parent's recording.
            self._recorded = of
            if terminal.scrub is not None:
                terminal.scrub.close()
            run = frame.run.directory if of[1] is None else RunDirectory(of[1])
            terminal.scrub = Scrub(run, of[0] or self.trial)
        trial = frame.state.trials.get(self.trial)
        began = trial.started_at if trial is not None else None
        terminal.scrub.started_at = None if of[0] else began
        at = self._moment()
        terminal.at = at if at is not None and at < frame.now else None

    def _moment(self) -> float | None:
        """What the terminal shows; None: as the run stands."""
        turns = self.query_one(TurnPane)
        turn = turns.turn
        if self._at is not None or turn is None:
            return self._at
        if turns.command is not None:
            return turn.command_at(turns.command)
        last = turns.chosen == len(turns.transcript.turns) - 1
        return None if turns.follow or last else turn.ended_at

    # The cursors

    def on_turn_pane_chosen(self) -> None:
        self._at, self._picked = None, True
        turns, tokens = self.query_one(TurnPane), self.query_one(TokenPane)
        if self._frame is not None:
            self._show_tokens(self._frame)
        if turns.command is not None:
            tokens.cursor = None
            if tokens.span:
                tokens.reveal_token(tokens.span.start)
        self.post_message(Redraw())

    def on_token_pane_pointed(self) -> None:
        """Choose the command that the token is in."""
        turns, tokens = self.query_one(TurnPane), self.query_one(TokenPane)
        if turns.turn is None or tokens.cursor is None:
            return
        turn = turns.transcript.turns[self._tokens_of]
        said = command_tokens([text for text, _ in tokens.tokens], turn.commands)
        inside = [index for index, span in enumerate(said) if span and tokens.cursor in span]
        self._at = None
        turns.point(self._tokens_of, inside[0] if inside else None)
        self.post_message(Redraw())

    def on_growing_pane_released(self, event: GrowingPane.Released) -> None:
        """Stop following, so that the next turn doesn't replace what is being read."""
        if isinstance(event.pane, TokenPane):
            self.query_one(TurnPane).point(self._tokens_of)

    def on_growing_pane_returned(self, event: GrowingPane.Returned) -> None:
        self._at = None
        if isinstance(event.pane, TokenPane):
            self.query_one(TurnPane).action_newest()

    def on_terminal_pane_scrubbed(self, event: TerminalPane.Scrubbed) -> None:
        """Move the terminal's time with the mouse wheel, and in a replay the clock."""
        app = run_app_of(self)
        if not self.replayed:
            self.action_scrub("change" if event.direction else "now", event.direction)
        elif event.direction:
            app.action_go("event", event.direction)
        else:
            app.action_go("edge", 1)

    def action_turn(self, turns: int) -> None:
        self.query_one(TurnPane).action_step(turns)

    def action_command(self, direction: int) -> None:
        if not self.query_one(TurnPane).step_command(direction):
            where = "after" if direction > 0 else "before"
            self.notify(f"No command {where} this.", markup=False, timeout=2)

    def action_scrub(self, what: Literal["change", "seconds", "now"], amount: int) -> None:
        """Move the terminal's time, and the turns with it."""
        frame, terminal = self._frame, self.query_one(TerminalPane)
        if frame is None or terminal.scrub is None:
            return
        end = frame.run.last_heard(self.trial)
        here = min(frame.now, end) if terminal.at is None else terminal.at
        if what == "now":
            self._to_now()
        elif what == "seconds":
            self._scrub_to(here + amount, end)
        else:
            at = terminal.scrub.change(here, 1 if amount > 0 else -1)
            if at is None and amount < 0:
                self.notify("Nothing was on its screen before this.", markup=False, timeout=2)
                return
            self._scrub_to(end if at is None else at, end)
        self.post_message(Redraw())

    def _scrub_to(self, at: float, end: float) -> None:
        """Show a moment of the terminal; `end`: the time of the trial's last event."""
        frame, turns = self._frame, self.query_one(TurnPane)
        trial = frame.state.trials.get(self.trial) if frame is not None else None
        if at >= end:
            self._to_now()
            return
        begun = trial.started_at if trial is not None else None
        self._at = at if begun is None else max(begun, at)
        turns.point(turns.transcript.turn_at(self._at) or 0)

    def _to_now(self) -> None:
        turns = self.query_one(TurnPane)
        self._at = None
        turns.follow, turns.command = True, None

    def action_unlikely(self, direction: Literal[-1, 1]) -> None:
        """Go to the next unlikely token, of this turn or another, cyclically."""
        turns, tokens = self.query_one(TurnPane), self.query_one(TokenPane)
        if tokens.jump(direction):
            self.post_message(Redraw())
            return
        count = len(turns.transcript.turns)
        for distance in range(1, count + 1):
            index = (self._tokens_of + direction * distance) % count
            if places := self._unlikely(index):
                turns.point(index)
                self._at = None
                if self._frame is not None:
                    self._show_tokens(self._frame)
                tokens.place(places[0] if direction > 0 else places[-1])
                self.post_message(Redraw())
                return
        self.notify("The policy found no token of this trial unlikely.", markup=False, timeout=2)

    def _unlikely(self, index: int) -> list[int]:
        sample = self.query_one(TurnPane).transcript.turns[index].sample
        if sample is None or self._frame is None:
            return []
        return unlikely_tokens(self._frame.run.tokens(sample))

    def action_thinking(self) -> None:
        turns = self.query_one(TurnPane)
        turns.thinking_open = not turns.thinking_open
        self.post_message(Redraw())

    # Elsewhere

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave these keys to the clock in a replay."""
        if action == "scrub" and self.replayed:
            return False
        return super().check_action(action, parameters)

    def idle_keys(self) -> Iterator[str]:
        turns = self.query_one(TurnPane)
        if turns.chosen >= len(turns.transcript.turns) - 1:
            yield "next-turn"
        if turns.chosen <= 0:
            yield "previous-turn"
        if turns.turn is None or turns.turn.sample is None:
            yield from ("prompt", "fork")
        if not self._has_unlikely():
            yield "next-surprise"
        if self.tools is None:
            yield "export"

    def _has_unlikely(self) -> bool:
        """Whether the policy found a token of the trial unlikely."""
        samples = [turn.sample for turn in self.query_one(TurnPane).transcript.turns]
        if samples != self._looked_at:
            self._looked_at = samples
            self._unlikely_found = any(map(self._unlikely, range(len(samples))))
        return self._unlikely_found

    def action_back(self) -> None:
        if self.full:
            self.action_full(0)
        else:
            self.dismiss()

    def action_open_group(self) -> None:
        """Open the trial's group, or go back to it if it was opened from there."""
        below = self.app.screen_stack[-2]
        if isinstance(below, ScopedScreen) and "group" in below.SCOPES:
            self.dismiss()
        else:
            run_app_of(self).action_open_group()

    def action_attempt(self) -> None:
        """Show the next attempt at this trial, cyclically."""
        if self._attempts:
            here = self._attempts.index(self.trial)
            self.app.switch_screen(TrialScreen(self._attempts[(here + 1) % len(self._attempts)]))
        else:
            self.notify("This is the only attempt.", markup=False, timeout=2)

    def action_fork(self) -> None:
        """Fork the trial at the chosen turn."""
        turn = self.query_one(TurnPane).turn
        trial = self._frame.state.trials.get(self.trial) if self._frame is not None else None
        if turn is None or trial is None or self._frame is None:
            self.notify("There is no turn to fork from yet.", markup=False, timeout=3)
        elif turn.sample is None:
            self.notify("Choose a turn of the model's: this is none.", markup=False, timeout=3)
        elif refused := meant("fork", standing(trial, self._frame.state))[1]:
            self.notify(refused, markup=False, timeout=6)
        elif self.replayed or self._frame.state.status is not None:
            self._fork_recorded(turn.turn)
        else:
            run_app_of(self).steering.fork(trial, turn.turn)

    def _fork_recorded(self, turn: int) -> None:
        """Show, and copy, what forks a trial of a run that is over."""
        assert self._frame is not None
        run = self._frame.run.directory.path
        line = to_type("fork", run, self.trial, "--turn", turn, "-n", 8)
        copy(self.app, line)
        self.notify(
            f"{line}\n\nCopied: forks of a run that is over are a run of their own."
            " --turn bisect looks for the turn at which the task was lost or won.",
            title="Fork",
            markup=False,
            timeout=12,
        )

    def action_parent(self) -> None:
        """Open the trial that this one forks, at the turn where they part."""
        trial = self._frame.state.trials.get(self.trial) if self._frame is not None else None
        if trial is None or not trial.parent:
            self.notify("This trial is no fork.", markup=False, timeout=2)
        elif self._frame is not None and trial.parent not in self._frame.state.trials:
            group = self._frame.state.groups.get(trial.group)
            of = group.forks.parent_run if group is not None and group.forks is not None else ""
            where = f" of {of}" if of else ", which is no longer in memory"
            self.notify(f"It forks {trial.parent}{where}.", markup=False, timeout=6)
        else:
            self.app.push_screen(TrialScreen(trial.parent, trial.fork_turn))

    def action_prompt(self) -> None:
        """Show the exact prompt of the chosen turn."""
        from tbtui.ui.screens.prompt import PromptScreen

        turn = self.query_one(TurnPane).turn
        if turn is not None and turn.sample is None and turn.prompt:
            self.app.push_screen(PromptScreen(self.trial, None, turn.turn, turn.prompt))
        elif turn is None or turn.sample is None:
            self.notify(
                "This turn's prompt isn't recorded: no answer yet, or no report by the policy.",
                markup=False,
                timeout=3,
            )
        else:
            self.app.push_screen(PromptScreen(self.trial, turn.sample, turn.turn))

    def _focused(self) -> Pane:
        focused = self.focused
        return focused if isinstance(focused, Pane) else self.query_one(TurnPane)

    def action_copy(self) -> None:
        """Copy what the focused pane shows."""
        pane = self._focused()
        if not pane.contents:
            self.notify("There is nothing to copy yet.", markup=False, timeout=2)
            return
        said = copy(self.app, pane.contents)
        what = _COPIED.get(pane.id or "", f"the {pane.id}")
        self.notify(said, title=f"Copied {what}", markup=False, timeout=3)

    def action_pager(self) -> None:
        """Show the focused pane's text in the person's pager; of an agent that prints JSON, with
        the terminal focused, what it has printed."""
        pane = self._focused()
        contents = pane.contents
        if pane.id == "terminal" and self._frame is not None:
            stream = self._frame.run.directory.agent_stream(self.trial)
            with contextlib.suppress(OSError):
                contents = read_plain(stream).decode(errors="replace")
        if not contents:
            self.notify("There is nothing to read yet.", markup=False, timeout=2)
        elif problem := page(self.app, contents):
            self.notify(problem, severity="warning", markup=False)

    def action_export(self) -> None:
        from tbtui.ui.screens.dialogs import ExportDialog

        if self.tools is None:
            assert self._frame is not None
            line = to_type("export", self._frame.run.directory.path, self.trial)
            self.notify(f"Not available here: {line} does it.", markup=False)
            return
        self.app.push_screen(ExportDialog(self.trial, Path.cwd()), self._export)

    def _export(self, wanted: tuple[ExportFormat, Path] | None) -> None:
        if wanted is not None:
            self.run_worker(self._write(*wanted), name="export")

    async def _write(self, format: ExportFormat, path: Path) -> None:
        if self.tools is None or self._frame is None:
            return
        run = self._frame.run.directory
        tools = await asyncio.to_thread(self.tools)
        try:
            await asyncio.to_thread(tools.export, run, self.trial, format, path)
        except UserError as error:
            self.app.notify(str(error), title="Not exported", severity="error", markup=False)
        else:
            self.app.notify(str(path), title="Exported", timeout=8, markup=False)
