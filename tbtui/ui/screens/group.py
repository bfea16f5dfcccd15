"""One group: trials side by side, where they diverge, and each one's advantage."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import ClassVar

from rich.style import Style
from textual.app import ComposeResult
from textual.strip import Strip

from tbtui.ui.drawing.charts import bar
from tbtui.ui.drawing.group_rows import SiblingStrip, sibling_of
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import Name, clip, elapsed, number, rate, visible, wrap
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import NOT_ABOVE_TRIALS, LinePane, notice
from tbtui.ui.panes.key_bar import KeyBar
from tbtui.ui.panes.pane import Frame
from tbtui.ui.panes.siblings import SiblingsPane, Spread
from tbtui.ui.panes.story import asks_row, story_rows
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.screens.trial import TrialScreen
from tbtui.ui.theme.glyphs import LEFT_OUT_MARK, RELABELLED_MARK, trial_glyph
from tbtui.view.current import active_seconds, siblings
from tbtui.view.review import gradient_share, group_share
from tbtui.view.state import GroupView, RunState, TrialView
from tbtui.view.waiting import doing

_WIDE = 110
_WHY = {
    "constant": ("all rewards equal: no gradient", "no signal"),
    "short": ("too few scored trials: dropped", "too few"),
}
"""Why a group teaches nothing, in a wide window and in a narrow one."""


def _why_nothing(group: GroupView, members: Sequence[TrialView], frame: Frame, width: int) -> str:
    """Why the group teaches nothing; empty where it does, or isn't scored yet."""
    state = frame.state
    words = _WHY.get(group.disposition or "", ("", ""))
    if group.disposition == "constant" and state.settings.get("screen_trials"):
        held_back = state.settings["group_size"] - len(members)
        if held_back > 0:
            words = f"rewards equal: the other {held_back} were not begun", f"{held_back} not begun"
    return words[width < _WIDE]


class GroupHead(LinePane):
    """Shows which group this is, and its state."""

    def __init__(self, id: str, spread: Spread) -> None:
        super().__init__(id)
        self._spread = spread

    def key(self, frame: Frame) -> Hashable:
        return frame.state.version, tuple(self._spread.names), self._spread.chosen

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, state = frame.palette, frame.state
        members = [state.trials[name] for name in self._spread.names if name in state.trials]
        if not members:
            return [row(width, (" this group is no longer in memory", palette.muted))]
        one, dot = members[0], (" · ", palette.faint)
        group = state.groups.get(one.group) or GroupView(one.group, one.task, one.step)
        where = f"step {one.step}" if one.purpose == "train" else f"held out, step {one.step}"
        if one.purpose == "fork":
            where = f"forks at turn {one.fork_turn}"
        elif one.purpose == "probe":
            where = "probe"
        left: list[Span] = [
            (" ", None),
            (Name(group.task), palette.strong),
            dot,
            (f"group of {where}", palette.muted),
            dot,
        ]
        strip = SiblingStrip(min(len(members), max(8, width // 4)), 1)
        siblings = [sibling_of(each, palette) for each in members]
        left += strip.spans(siblings, min(self._spread.chosen, len(members) - 1), palette)
        if group.disposition is not None:
            left += [
                dot,
                ("baseline ", palette.muted),
                (rate(group.baseline).strip(), palette.text),
            ]
        if why := _why_nothing(group, members, frame, width):
            left += [dot, (why, palette.attention)]
        share = group_share(one.group, state)
        right = notice(frame, self.screen, said=NOT_ABOVE_TRIALS)
        if share is not None:
            step = state.step_view(one.step)
            so_far = " so far" if step is not None and step.finished_at is None else ""
            words = f" of the step's gradient{so_far} " if width >= _WIDE else " of gradient "
            right += [(f"{share:.0%}", palette.strong), (words, palette.muted)]
        return [split_row(width, left, right, palette.on_surface)]


class GroupAsks(LinePane):
    """Shows what the group's task asks."""

    def __init__(self, id: str, spread: Spread) -> None:
        super().__init__(id)
        self._spread = spread

    def key(self, frame: Frame) -> Hashable:
        return tuple((each.trial, len(each.samples)) for each in self._members(frame))

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        return [asks_row(frame, each, width) for each in self._members(frame)[:1]]

    def _members(self, frame: Frame) -> list[TrialView]:
        trials = frame.state.trials
        return [trials[name] for name in self._spread.names if name in trials]


class _Columns(LinePane):
    """One block of rows for each visible sibling."""

    def __init__(self, id: str, spread: Spread) -> None:
        super().__init__(id)
        self._spread = spread

    def key(self, frame: Frame) -> Hashable:
        return frame.state.version, int(frame.now), self._spread.key

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        blocks = []
        # As wide as the turns between the two, which have a scroll bar.
        for index, cells in self._spread.columns(width - 1):
            trial = (
                frame.state.trials.get(self._spread.names[index]) if self._spread.names else None
            )
            rows = [] if trial is None else self.block(frame, trial, cells - 1, index)
            rows += [row(cells - 1)] * (height - len(rows))
            blocks.append([Strip.join([each, Strip.blank(1)]) for each in rows[:height]])
        return [
            Strip.join([*(block[line] for block in blocks), Strip.blank(1)])
            for line in range(height)
        ]

    def block(self, frame: Frame, trial: TrialView, width: int, index: int) -> list[Strip]:
        raise NotImplementedError


class SiblingHeads(_Columns):
    """Each sibling's name and state, and its story below."""

    def block(self, frame: Frame, trial: TrialView, width: int, index: int) -> list[Strip]:
        palette = frame.palette
        glyph = trial_glyph(trial, palette)
        chosen = index == self._spread.chosen
        label = trial.label if trial.attempt == 1 else f"{trial.label} #{trial.attempt}"
        out = trial.left_out is not None
        name = palette.muted + Style(strike=True) if out else palette.strong
        left: list[Span] = [
            (f" {glyph.char} ", glyph.style),
            (Name(label), name),
            (f"  {doing(trial)}", palette.muted),
        ]
        right: list[Span] = []
        if trial.started_at is not None:
            spent = elapsed(active_seconds(trial, frame.now))
            right = [(f"t{trial.turn} {spent} ", palette.muted)]
        if chosen:
            left = [
                (text, Style(strike=True) if text == label and out else None) for text, _ in left
            ]
            right = [(text, None) for text, _ in right]
        head = split_row(width, left, right, palette.selected if chosen else palette.on_surface)
        room = self.size.height - 1
        return [head, *story_rows(frame, trial, width, room)] if room > 0 else [head]


class SiblingFoot(_Columns):
    """Reward, baseline, advantage, action tokens, and the share of the step's gradient."""

    ROWS = 3

    def make_room(self, members: Sequence[TrialView]) -> None:
        """A row more, where a reason may have to be shown; below the line above it."""
        rows = self.ROWS + any(each.relabelled for each in members)
        self.styles.height = rows + 1

    def block(self, frame: Frame, trial: TrialView, width: int, index: int) -> list[Strip]:
        if trial.left_out is not None:
            return self._left_out(frame, trial, width)
        rows = self._scored(frame, trial, width)
        if trial.relabelled and index == self._spread.chosen:
            why = clip(visible(trial.relabel_reason), width - 16)
            mark: Span = (f" {RELABELLED_MARK} relabelled: ", frame.palette.accent)
            rows.insert(1, row(width, mark, (why, frame.palette.text)))
        return rows

    def _scored(self, frame: Frame, trial: TrialView, width: int) -> list[Strip]:
        palette, state = frame.palette, frame.state
        if trial.reward is None:
            return [row(width, (" reward –", palette.faint))]
        reward: list[Span] = [
            (" reward ", palette.muted),
            (number(trial.reward), palette.reward(trial.reward)),
        ]
        if trial.relabelled:
            reward.append((f" {RELABELLED_MARK}", palette.accent))
        if trial.advantage is None or trial.baseline is None:
            later = {
                "eval": "held out: never trained on",
                "fork": "forks: never trained on",
                "probe": "a probe: never trained on",
            }.get(trial.purpose, "more once the group is scored")
            return [row(width, *reward), row(width, (f" {later}", palette.faint))]
        reward += [(" - baseline ", palette.muted), (number(trial.baseline), palette.text)]
        advantage: list[Span] = [
            (" advantage ", palette.muted),
            (f"{trial.advantage:+.2f}", palette.good if trial.advantage > 0 else palette.bad),
            (" × ", palette.muted),
            (f"{trial.tokens or 0:,}", palette.text),
            (" tok", palette.muted),
        ]
        share = gradient_share(trial, state) or 0.0
        step = state.step_view(trial.step)
        so_far = step is not None and step.finished_at is None
        largest = max((gradient_share(t, state) or 0.0 for t in siblings(trial, state)), default=0)
        room = max(1, width - (18 if so_far else 20))
        style = palette.good if trial.advantage > 0 else palette.bad
        pulls = split_row(
            width,
            [(" ", None), (bar(share / largest if largest else 0.0, room), style)],
            [
                (f"{share:.1%}", palette.strong),
                (" so far" if so_far else " of gradient", palette.muted),
            ],
        )
        if trial.advantage == 0:
            advantage = [(" advantage 0: no gradient", palette.muted)]
        return [row(width, *reward), row(width, *advantage), pulls]

    def _left_out(self, frame: Frame, trial: TrialView, width: int) -> list[Strip]:
        palette = frame.palette
        mark = "!" if trial.infrastructure else LEFT_OUT_MARK
        head: list[Span] = [
            (f" {mark} not in the group: ", palette.muted),
            (str(trial.left_out), palette.infrastructure if mark == "!" else palette.attention),
        ]
        why = trial.exclusion_reason if trial.excluded else trial.reason
        rows = [row(width, *head)]
        if trial.reward is not None:
            struck = palette.muted + Style(strike=True)
            rows.append(row(width, (" ", None), (f"reward {number(trial.reward)}", struck)))
        rows += [row(width, (f" {line}", palette.muted)) for line in wrap(why, width - 2)]
        return rows


class GroupScreen(LiveScreen):
    """A group's trials; steering keys act on the chosen one."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("group", "siblings", "steering", "everywhere")
    BINDINGS = bindings("group", "steering")
    AUTO_FOCUS = "#siblings"
    OVERVIEW = ("siblings",)

    def __init__(self, trial: str) -> None:
        """The group of this trial, which is chosen at first."""
        super().__init__()
        self.trial: str = trial
        self._group = ""
        self._spread = Spread([trial])

    def compose_panes(self) -> ComposeResult:
        yield GroupHead("head", self._spread)
        yield GroupAsks("asks", self._spread)
        yield SiblingHeads("heads", self._spread)
        yield SiblingsPane("siblings", self._spread)
        yield SiblingFoot("foot", self._spread)
        yield KeyBar("keys", *self.SCOPES)

    def show(self, frame: Frame, beat: int) -> None:
        members = self._members(frame.state)
        self.query_one(SiblingsPane).read_on(frame, members)
        if members:
            self.trial = self._spread.names[self._spread.chosen]
            self.query_one(SiblingFoot).make_room(members)
        super().show(frame, beat)

    def _members(self, state: RunState) -> list[TrialView]:
        trial = state.trials.get(self.trial)
        if trial is None:
            # The one that was chosen is no longer kept; others of its group may be.
            group = state.groups.get(self._group)
            left = [name for name in group.trials if name in state.trials] if group else []
            trial = state.trials[left[0]] if left else None
        if trial is None:
            return []
        self._group = trial.group
        return siblings(trial, state)

    def idle_keys(self) -> Iterable[str]:
        if not self.query_one(SiblingsPane).divergences:
            yield "divergence"

    def action_back(self) -> None:
        self.dismiss()

    def action_open(self) -> None:
        pane = self.query_one(SiblingsPane)
        cells = pane.cells[self._spread.chosen] if pane.cells else []
        turn = cells[min(self._spread.turn, len(cells) - 1)].turn.turn if cells else None
        self.app.push_screen(TrialScreen(self.trial, turn))

    def on_siblings_pane_opened(self) -> None:
        self.action_open()
