"""The review of a step: what it shows, and what is decided there, in the real app."""

from __future__ import annotations

import getpass
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from tbtui.errors import UserError
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import (
    GroupScored,
    ReviewChanged,
    ReviewClosed,
    ReviewOpened,
    TrialRetried,
)
from tbtui.journal.review_rule import ReviewRule, rule_toml
from tbtui.serve.viewer import ServedRun
from tbtui.show_run import add_rule
from tbtui.ui.app import TbtuiApp
from tbtui.ui.notifications import title
from tbtui.ui.runs import ReplayedRun
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.dialogs import ConfirmDialog, ReasonDialog
from tbtui.ui.screens.group import GroupScreen
from tbtui.ui.screens.review import RelabelDialog, ReviewScreen, RuleDialog
from tbtui.ui.screens.trial import TrialScreen
from tbtui.ui.services import Services
from tbtui.view.times import Outlook
from tbtui.view.waiting import needs
from tests.engines.real_run import RealRun
from tests.ui.opening import Opener, app_of, host_of, pane, press, rest, screen_of, toasts, window
from tests.ui.picture import settle
from tests.ui.review_run import STEP, ReviewedRun, ReviewHost
from tests.ui.test_typing import RealHost, until


@pytest.fixture
def reviewed(tmp_path: Path) -> Iterator[ReviewedRun]:
    run = ReviewedRun(tmp_path / "reviewed")
    yield run
    run.close()


@pytest.fixture
def host(reviewed: ReviewedRun) -> ReviewHost:
    return ReviewHost(reviewed)


def app_on(host: ReviewHost, **options: Any) -> TbtuiApp:
    return TbtuiApp(host, live=False, clock=lambda: host.reviewed.now, **options)


@pytest.fixture
def reviewing(host: ReviewHost) -> Opener:
    """Opens the app with the review open."""

    @asynccontextmanager
    async def open_app(
        size: tuple[int, int] = (80, 24), **options: Any
    ) -> AsyncIterator[Pilot[int]]:
        app = app_on(host, **options)
        async with window(app, size) as pilot:
            await press(pilot, "V")
            assert isinstance(app.screen, ReviewScreen)
            yield pilot

    return open_app


def asked(pilot: Pilot[int]) -> list[tuple[str, str, str, dict[str, Any]]]:
    return [(c.verb, c.target, c.reason, dict(c.arguments)) for c in host_of(pilot).commands]


async def written_to_its_end(app: TbtuiApp) -> None:
    """A rule is written on a thread."""
    for worker in [each for each in app.workers if each.name == "rule"]:
        await worker.wait()


def line_of(pilot: Pilot[int], name: str, words: str) -> str:
    return next(line for line in pane(pilot, name).text.splitlines() if words in line)


async def test_another_reward_needs_a_number_and_a_reason_and_can_be_taken_back(
    reviewing: Opener,
) -> None:
    async with reviewing() as pilot:
        await press(pilot, "n", "L")
        dialog = screen_of(pilot, RelabelDialog)
        reward, reason = dialog.query_one("#reward", Input), dialog.query_one("#reason", Input)
        for text, problem in (("nan", "must be a number"), ("", "which reward?")):
            reward.value = text
            await pilot.press("enter")
            assert problem in str(dialog.query_one("#problem").render())
        reward.value = "0.5"
        await pilot.press("enter")
        assert reason.has_focus
        await pilot.press("space", "enter")
        assert "a reason is needed" in str(dialog.query_one("#problem").render())
        reason.value = "half"
        await press(pilot, "enter")
        assert asked(pilot)[-1] == ("relabel", "copy-03-8", "half", {"reward": 0.5})
        assert "✗*" not in pane(pilot, "review-groups").text
        assert "◐*" in line_of(pilot, "review-groups", "copy-03")
        assert (
            "* relabelled, the verifier's reward was .00: half" in pane(pilot, "review-trials").text
        )
        assert "2 undecided" in str(pane(pilot, "review-groups").border_title)
        await press(pilot, "L", "backspace", "enter")
        assert asked(pilot)[-1] == ("relabel", "copy-03-8", "", {"reward": None})
        assert "*" not in line_of(pilot, "review-groups", "copy-03")


@pytest.mark.slow
async def test_accepting_asks_while_something_odd_is_undecided(reviewing: Opener) -> None:
    async with reviewing() as pilot:
        await press(pilot, "a")
        assert isinstance(pilot.app.screen, ConfirmDialog)
        await press(pilot, "enter")
        assert asked(pilot) == []
        await press(pilot, "space", "n", "space", "n", "space")
        assert [each[:2] for each in asked(pilot)] == [
            ("accept", "copy-03-4"),
            ("accept", "copy-03-8"),
            ("accept", "count-lines-of-a-log-01-7"),
        ]
        await press(pilot, "a")
        assert asked(pilot)[-1] == ("accept", RUN, "", {"step": STEP})
        text = pane(pilot, "review-groups").text
        assert "No step waits for a review." in text
        assert "The review of step 3 closed at" in text
        assert not pane(pilot, "review-trials").display
        # What can be asked of a step makes no sense now, and asks nothing.
        await press(pilot, *"aeLfAr", "space")
        assert asked(pilot)[-1][0] == "accept"


def test_the_terminals_title_says_that_a_review_waits(host: ReviewHost) -> None:
    app = app_on(host)
    app.live_run.follow(10)
    state = app.live_run.state
    standing = needs(Outlook(state, app.live_run.now))
    assert [need.text for need in standing] == ["step 3 waits for a review"]
    assert title(state, standing) == "! tbtui reviewed: step 3 waits for a review"
    app.live_run.close()


@pytest.mark.slow
async def test_leaving_out_refilling_and_retrying(reviewing: Opener) -> None:
    async with reviewing((160, 45)) as pilot:
        await press(pilot, "e")
        assert isinstance(pilot.app.screen, ReasonDialog)
        await press(pilot, *"cheat", "enter")
        assert asked(pilot)[-1] == ("exclude", "copy-03-4", "cheat", {})
        assert "✓⊘" in line_of(pilot, "review-groups", "copy-03")
        assert "⊘ left out: cheat" in pane(pilot, "review-trials").text
        assert "trains on 22 of 40" in str(pane(pilot, "review-groups").border_title)
        await press(pilot, "e")
        assert asked(pilot)[-1][:2] == ("include", "copy-03-4")
        await press(pilot, "f")
        assert asked(pilot)[-1][:2] == ("refill", "s3-copy-03")
        # The fresh one is there at once, and runs.
        assert "copy-03/9" in pane(pilot, "review-trials").text
        assert "1 running" in str(pane(pilot, "review-trials").border_title)
        await press(pilot, "right", "r")
        assert asked(pilot)[-1][:2] == ("retry", "copy-03-5")


@pytest.mark.slow
async def test_the_cursor_goes_from_odd_to_odd_and_into_trials_and_groups(
    reviewing: Opener,
) -> None:
    async with reviewing() as pilot:
        screen = screen_of(pilot, ReviewScreen)

        def chosen() -> str:
            assert isinstance(screen, ReviewScreen)
            trial = screen._cursor.trial
            return trial.name if trial is not None else ""

        seen = [chosen()]
        for _ in range(3):
            await press(pilot, "n")
            seen.append(chosen())
        assert seen == ["copy-03-4", "copy-03-8", "count-lines-of-a-log-01-7", "copy-03-4"]
        await press(pilot, "down", "down", "down", "right", "left", "left")
        assert chosen() == "move-05-1"
        await press(pilot, "tab", "down")
        assert chosen() == "move-05-2"
        await press(pilot, "enter")
        assert isinstance(pilot.app.screen, TrialScreen)
        assert "review waits · V" in pane(pilot, "head").text
        await press(pilot, "escape", "g")
        assert isinstance(pilot.app.screen, GroupScreen)
        assert "review waits · V" in pane(pilot, "head").text
        await press(pilot, "escape", "escape")
        assert isinstance(pilot.app.screen, Cockpit)
        assert "review waits · V" in pane(pilot, "status").text


async def test_the_chosen_trial_is_followed_to_its_fresh_attempt(
    reviewing: Opener, reviewed: ReviewedRun
) -> None:
    async with reviewing() as pilot:
        screen = screen_of(pilot, ReviewScreen)
        # While another screen is on top, and twice.
        await press(pilot, "enter")
        for trial, number in (("copy-03-4", 9), ("copy-03-9", 10)):
            fresh = f"copy-03-{number}"
            reviewed.write(TrialRetried(trial=trial, successor=fresh, reason="asked for"))
            reviewed.queue("copy-03", number)
        await press(pilot, "escape")
        assert screen._cursor.key == ("s3-copy-03", "copy-03-10")
        await press(pilot, "left")
        assert screen._cursor.key == ("s3-copy-03", "copy-03-3")


@pytest.mark.slow
async def test_the_mouse_chooses_a_trial_by_its_glyph_and_by_its_line(reviewing: Opener) -> None:
    async with reviewing((160, 45)) as pilot:
        screen = screen_of(pilot, ReviewScreen)
        groups, trials = pane(pilot, "review-groups"), pane(pilot, "review-trials")
        line = groups.text.splitlines().index(line_of(pilot, "review-groups", "move-05"))
        # Inside the box: its edge is a row and a column.
        column = line_of(pilot, "review-groups", "move-05").index("✗")
        await pilot.click(groups, offset=(column + 1, line + 1))
        await settle(app_of(pilot))
        assert screen._cursor.key == ("s3-move-05", "move-05-4")
        await pilot.click(trials, offset=(8, 3))
        await settle(app_of(pilot))
        assert screen._cursor.key == ("s3-move-05", "move-05-2")
        await pilot.click(trials, offset=(8, 3), times=2)
        assert isinstance(pilot.app.screen, TrialScreen)


@pytest.mark.slow
async def test_always_shows_the_rule_writes_it_and_accepts_the_trial(
    reviewing: Opener, host: ReviewHost
) -> None:
    async with reviewing(services=Services(add_rule=add_rule)) as pilot:
        await press(pilot, "A")
        dialog = screen_of(pilot, RuleDialog)
        shown = str(dialog.query_one("#rule").render())
        for words in ('suspect = "few_turns"', 'outcome = "solved"', 'task = "copy-03"'):
            assert words in shown
        await press(pilot, "t")
        assert (
            "copy-03"
            not in str(dialog.query_one("#rule").render()).split("do =")[0].split("when")[1]
        )
        assert host.commands == []
        await press(pilot, "enter")
        await written_to_its_end(app_of(pilot))
        await settle(app_of(pilot))
        written = host.directory.review_rules.read_text()
        assert 'do = "accept"' in written
        assert 'suspect = "few_turns", outcome = "solved" }' in written
        assert asked(pilot)[-1][:2] == ("accept", "copy-03-4")
        # The same once more would have the same name.
        host.reviewed.decided.clear()
        await press(pilot, "A", "enter")
        await written_to_its_end(app_of(pilot))
        assert host.directory.review_rules.read_text() == written
        assert any(str(host.directory.review_rules) in text for text in toasts(pilot))


@pytest.mark.slow
async def test_a_rule_goes_to_the_file_that_the_settings_name(tmp_path: Path) -> None:
    named = tmp_path / "mine.toml"
    run = ReviewedRun(tmp_path / "named", settings={"review_rules": str(named)})
    written: list[tuple[Path, ReviewRule]] = []

    def refuse(file: Path, rule: ReviewRule) -> None:
        written.append((file, rule))
        raise UserError("mine.toml: rule 1: there is no such suspect")

    host = ReviewHost(run)
    app = app_on(host, services=Services(add_rule=refuse))
    async with window(app, (80, 24)) as pilot:
        await press(pilot, "V", "A", "enter")
        await written_to_its_end(app)
        assert [file for file, _ in written] == [named]
        assert "few_turns" in rule_toml(written[0][1])
        assert "mine.toml: rule 1: there is no such suspect" in toasts(pilot)
        assert host.commands == []
        await press(pilot, "left", "A")
        assert any("it has no suspicion" in text for text in toasts(pilot))
    run.close()


@pytest.mark.slow
async def test_a_guest_of_a_served_run_sees_the_review_and_decides_nothing(
    reviewed: ReviewedRun,
) -> None:
    host = ServedRun(reviewed.run)
    app = TbtuiApp(
        host,
        live=False,
        clock=lambda: reviewed.now,
        services=Services(guest=True, add_rule=add_rule),
    )
    async with window(app, (80, 24)) as pilot:
        await press(pilot, "V")
        assert isinstance(app.screen, ReviewScreen)
        assert "▸ copy-03" in pane(pilot, "review-groups").text
        assert "? few turns" in pane(pilot, "review-trials").text
        bar, before = pane(pilot, "keys").text, app.live_run.state.version
        for key in app.user.keys.in_scope("deciding"):
            app.clear_notifications()
            await press(pilot, key.shown)
            assert toasts(pilot) == [f"Read-only: {host.read_only}."], key.id
            assert f" {key.shown} {key.label} " not in bar
        await press(pilot, "enter", "L")
        assert isinstance(app.screen, TrialScreen)
        assert app.live_run.state.version == before
    assert not reviewed.run.review_rules.exists()


@pytest.mark.slow
async def test_a_trial_can_be_relabelled_wherever_it_is_chosen(reviewing: Opener) -> None:
    async with reviewing((160, 45)) as pilot:
        await press(pilot, "enter")
        assert "verdict 1.0  reward 1.0" in pane(pilot, "verdict").text
        await press(pilot, "L", "0", "tab", *"why", "enter")
        assert asked(pilot)[-1] == ("relabel", "copy-03-4", "why", {"reward": 0.0})
        assert "verdict 1.0  reward .00*" in pane(pilot, "verdict").text
        assert "* relabelled" in pane(pilot, "head").text
        assert "relabelled: why" in pane(pilot, "facts").text
        await press(pilot, "g")
        screen_of(pilot, GroupScreen)
        assert "reward .00 *" in pane(pilot, "foot").text
        assert "* relabelled: why" in pane(pilot, "foot").text
        await press(pilot, "left")
        assert "reward .00 *" in pane(pilot, "foot").text
        assert "relabelled" not in pane(pilot, "foot").text


@pytest.mark.slow
async def test_a_replay_shows_the_review_at_the_clock(reviewed: ReviewedRun) -> None:
    opened_at = reviewed.now
    reviewed.command(Command(verb="exclude", target="copy-03-4", actor="ada", reason="cheat"))
    reviewed.now += 60
    reviewed.command(Command(verb="accept", target=RUN, actor="ada", arguments={"step": STEP}))
    reviewed.now += 60
    run = ReplayedRun(reviewed.run)
    app = TbtuiApp(ReviewHost(reviewed), live=False, recorded=run)
    async with window(app) as pilot:
        await press(pilot, "V")
        assert "> goes to the next milestone" in pane(pilot, "review-groups").text
        await press(pilot, ")", ">")
        while run.now < opened_at:
            await press(pilot, ">")
        assert "step 3 waits for a review" in pane(pilot, "transport").text
        groups = pane(pilot, "review-groups")
        assert "3 undecided" in str(groups.border_title)
        assert "a accept" not in pane(pilot, "keys").text
        run.playback.go_to(opened_at + 30)
        app.moved()
        await settle(app)
        assert "✓⊘" in groups.text
        await press(pilot, "a", "e", "L", "enter")
        assert isinstance(app.screen, TrialScreen)
        await press(pilot, "escape")
        run.playback.go_to(run.playback.end)
        app.moved()
        await settle(app)
        assert "accepted by ada" in groups.text
        assert app.own.host.commands == []  # type: ignore[attr-defined]


@pytest.mark.slow
async def test_without_a_review_it_says_what_one_is(tmp_path: Path) -> None:
    run = ReviewedRun(tmp_path / "off", opened=False, settings={"review": "off"})
    app = app_on(ReviewHost(run))
    async with window(app, (80, 24)) as pilot:
        await press(pilot, "V")
        text = pane(pilot, "review-groups").text
        assert "tbtui ctl config set review=suspects --run" in text
        assert "tbtui run review=always" in text
        assert "review waits" not in pane(pilot, "status").text
    run.close()


@pytest.mark.slow
async def test_two_steps_may_wait_at_once(reviewing: Opener, reviewed: ReviewedRun) -> None:
    async with reviewing((160, 45)) as pilot:
        reviewed.write(ReviewOpened(step=STEP + 1, groups=reviewed.groups()[3:4], undecided=()))
        await settle(app_of(pilot))
        assert "step 4 waits too (o)" in str(pane(pilot, "review-groups").border_title)
        await press(pilot, "o")
        assert "review of step 4" in str(pane(pilot, "review-groups").border_title)
        await press(pilot, "o")
        assert "review of step 3" in str(pane(pilot, "review-groups").border_title)


async def test_the_chosen_trial_is_previewed(reviewing: Opener, reviewed: ReviewedRun) -> None:
    async with reviewing((160, 45)) as pilot:
        app = app_of(pilot)
        screen = screen_of(pilot, ReviewScreen)
        for key in ("", "down", "right"):
            if key:
                await press(pilot, key)
            name = screen.chosen_trial
            assert name is not None
            trial = app.live_run.state.trials[name]
            assert trial.outcome is not None
            assert str(trial.outcome) in pane(pilot, "verdict").text
            assert trial.task in str(pane(pilot, "task").border_title)
            assert pane(pilot, "lines").text.splitlines()[1].startswith(" story  ")
            assert pane(pilot, "terminal").size.height > 5
            assert list(screen.previewed) == [name]
        # What the trials need is theirs: all of the group are in sight.
        trials = pane(pilot, "review-trials")
        assert trials.max_scroll_y == 0
        trial.label = "a-name-that-needs-more-than-its-column/12"
        app.live_run.state.version += 1
        await settle(app)
        assert trial.label in trials.text


async def test_in_a_low_window_the_preview_takes_no_row_that_a_table_needs(
    reviewing: Opener,
) -> None:
    for size in ((160, 32), (120, 36)):
        async with reviewing(size) as pilot:
            preview = pilot.app.screen.query_one("#preview")
            assert preview.display
            tables = pane(pilot, "review-groups"), pane(pilot, "review-trials")
            if any(each.max_scroll_y for each in tables):
                assert preview.size.height == 8
            assert pane(pilot, "terminal").size.height >= 6
            taken = sum(each.outer_size.height for each in (*tables, preview))
            assert taken == size[1] - 4
            # A small one has two lines instead.
            await pilot.resize_terminal(80, 24)
            await rest(pilot)
            assert not preview.display
            assert pane(pilot, "lines").size.height == 2


# Over a real step of real trials, which is then trained


async def shown(app: TbtuiApp, condition: Callable[[], object]) -> None:
    """Until the screen knows it."""
    await until(app, condition)
    await settle(app)


@pytest.mark.slow
async def test_what_is_decided_on_the_screen_is_what_is_trained(tmp_path: Path) -> None:
    run = RealRun(tmp_path / "run", owner=getpass.getuser(), review="always")
    await run.begin()
    run.policy.go.set()
    app = TbtuiApp(RealHost(run), live=False)
    try:
        async with app.run_test(size=(160, 45), notifications=True) as pilot:
            await shown(app, lambda: app.live_run.state.reviews)
            state = app.live_run.state
            first, second, third = state.trials.values()
            assert "review waits · V" in pane(pilot, "status").text
            await press(pilot, "V")
            assert "✗ ✗ ✗" in pane(pilot, "review-groups").text
            assert "no signal" in pane(pilot, "review-groups").text
            await pilot.press("L", "1", "tab", *"done", "enter")
            await shown(app, lambda: first.relabelled)
            await pilot.press("right", "e", "enter")
            await shown(app, lambda: second.excluded)
            assert "✓*✗⊘✗" in pane(pilot, "review-groups").text
            await pilot.press("right", "space")
            await shown(app, lambda: not state.reviews[1].undecided)
            await pilot.press("a")
            await shown(app, lambda: state.review_closed)
            end = await run.end()
    finally:
        await run.stop()
    assert end.status == "finished", end
    (scored,) = run.events(GroupScored)
    assert {name: score.reward for name, score in scored.trials.items()} == {
        first.trial: 1.0,
        second.trial: None,
        third.trial: 0.0,
    }
    assert scored.disposition == "trained"
    # What was on the screen last is what was trained, to the digit.
    (last,) = run.events(ReviewChanged)[-1].groups
    assert (last.baseline, last.trials) == (scored.baseline, scored.trials)
    (closed,) = run.events(ReviewClosed)
    assert closed.how == "accepted"
