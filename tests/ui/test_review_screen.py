"""The review of a step: what it shows, and what is decided there, in the real app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from tbtui.errors import UserError
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import TrialRetried
from tbtui.journal.review_rule import Rule, rule_toml
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
from tests.ui.opening import app_of, pane
from tests.ui.picture import settle
from tests.ui.review_run import START, STEP, ReviewedRun, ReviewHost

ReviewOpener = Callable[..., AbstractAsyncContextManager[Pilot[int]]]


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
def reviewing(host: ReviewHost) -> ReviewOpener:
    """Opens the app with the review open."""

    @asynccontextmanager
    async def open_app(
        size: tuple[int, int] = (80, 24), **options: Any
    ) -> AsyncIterator[Pilot[int]]:
        app = app_on(host, **options)
        async with app.run_test(size=size, notifications=True) as pilot:
            await settle(app)
            await press(pilot, "V")
            assert isinstance(app.screen, ReviewScreen)
            yield pilot

    return open_app


async def press(pilot: Pilot[int], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settle(app_of(pilot))


def asked(host: ReviewHost) -> list[tuple[str, str, str, dict[str, Any]]]:
    return [(c.verb, c.target, c.reason, dict(c.arguments)) for c in host.commands]


async def written_to_its_end(app: TbtuiApp) -> None:
    """A rule is written on a thread."""
    for worker in [each for each in app.workers if each.name == "rule"]:
        await worker.wait()


def line_of(pilot: Pilot[int], name: str, words: str) -> str:
    return next(line for line in pane(pilot, name).text.splitlines() if words in line)


def toasts(pilot: Pilot[int]) -> list[str]:
    return [str(toast.message) for toast in pilot.app._notifications]


async def test_a_line_a_group_and_below_its_trials_with_what_is_odd(
    reviewing: ReviewOpener,
) -> None:
    async with reviewing() as pilot:
        groups = pane(pilot, "review-groups")
        assert "review of step 3 · 3 undecided · trains on 23 of 40" in str(groups.border_title)
        assert "▸ copy-03       ✓ ✗ ✓ ✓?! ✗ ✓ ✗? .57  ±.49" in groups.text
        assert "-0.57 +0.43    42%" in line_of(pilot, "review-groups", "copy-03")
        assert "no signal: all equal" in line_of(pilot, "review-groups", "nested-02")
        assert "too few rewards: dropped" in line_of(pilot, "review-groups", "remove-04")
        trials = pane(pilot, "review-trials")
        assert "copy-03 · 4 solved · 3 failed · 1 sandbox lost" in str(trials.border_title)
        # It begins at the first that is odd.
        assert line_of(pilot, "review-trials", "▸").split()[1:4] == ["✓?", "copy-03/4", "solved"]
        assert "? few turns: solved in 1 turn" in trials.text
        assert "! infrastructure: worker 1 was killed" in trials.text


async def test_another_reward_needs_a_number_and_a_reason_and_can_be_taken_back(
    reviewing: ReviewOpener, host: ReviewHost
) -> None:
    async with reviewing() as pilot:
        await press(pilot, "n", "L")
        dialog = pilot.app.screen
        assert isinstance(dialog, RelabelDialog)
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
        assert asked(host)[-1] == ("relabel", "copy-03-8", "half", {"reward": 0.5})
        assert "✗*" not in pane(pilot, "review-groups").text
        assert "◐*" in line_of(pilot, "review-groups", "copy-03")
        assert (
            "* relabelled, the verifier's reward was .00: half" in pane(pilot, "review-trials").text
        )
        assert "2 undecided" in str(pane(pilot, "review-groups").border_title)
        await press(pilot, "L", "backspace", "enter")
        assert asked(host)[-1] == ("relabel", "copy-03-8", "", {"reward": None})
        assert "*" not in line_of(pilot, "review-groups", "copy-03")


@pytest.mark.slow
async def test_accepting_asks_while_something_odd_is_undecided(
    reviewing: ReviewOpener, host: ReviewHost
) -> None:
    async with reviewing() as pilot:
        await press(pilot, "a")
        assert isinstance(pilot.app.screen, ConfirmDialog)
        await press(pilot, "enter")
        assert asked(host) == []
        await press(pilot, "space", "n", "space", "n", "space")
        assert [each[:2] for each in asked(host)] == [
            ("accept", "copy-03-4"),
            ("accept", "copy-03-8"),
            ("accept", "count-lines-of-a-log-01-7"),
        ]
        await press(pilot, "a")
        assert asked(host)[-1] == ("accept", RUN, "", {"step": STEP})
        text = pane(pilot, "review-groups").text
        assert "No step waits for a review." in text
        assert "The review of step 3 closed at" in text
        assert not pane(pilot, "review-trials").display
        # What can be asked of a step makes no sense now, and asks nothing.
        await press(pilot, *"aeLfAr", "space")
        assert asked(host)[-1][0] == "accept"


def test_the_terminals_title_says_that_a_review_waits(host: ReviewHost) -> None:
    app = app_on(host)
    app.live_run.follow(10)
    state = app.live_run.state
    standing = needs(Outlook(state, app.live_run.now))
    assert [need.text for need in standing] == ["step 3 waits for a review"]
    assert title(state, standing) == "! tbtui reviewed: step 3 waits for a review"
    app.live_run.close()


@pytest.mark.slow
async def test_leaving_out_refilling_and_retrying(
    reviewing: ReviewOpener, host: ReviewHost
) -> None:
    async with reviewing((160, 45)) as pilot:
        await press(pilot, "e")
        assert isinstance(pilot.app.screen, ReasonDialog)
        await press(pilot, *"cheat", "enter")
        assert asked(host)[-1] == ("exclude", "copy-03-4", "cheat", {})
        assert "✓⊘" in line_of(pilot, "review-groups", "copy-03")
        assert "⊘ left out: cheat" in pane(pilot, "review-trials").text
        assert "trains on 22 of 40" in str(pane(pilot, "review-groups").border_title)
        await press(pilot, "e")
        assert asked(host)[-1][:2] == ("include", "copy-03-4")
        await press(pilot, "f")
        assert asked(host)[-1][:2] == ("refill", "s3-copy-03")
        # The fresh one is there at once, and runs.
        assert "copy-03/9" in pane(pilot, "review-trials").text
        assert "1 running" in str(pane(pilot, "review-trials").border_title)
        await press(pilot, "right", "r")
        assert asked(host)[-1][:2] == ("retry", "copy-03-5")


@pytest.mark.slow
async def test_the_cursor_goes_from_odd_to_odd_and_into_trials_and_groups(
    reviewing: ReviewOpener,
) -> None:
    async with reviewing() as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, ReviewScreen)

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
    reviewing: ReviewOpener, reviewed: ReviewedRun
) -> None:
    async with reviewing() as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, ReviewScreen)
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
async def test_an_opened_trials_verdict_and_the_reward_that_counts(
    reviewing: ReviewOpener, host: ReviewHost
) -> None:
    async with reviewing((160, 45)) as pilot:
        await press(pilot, "enter")
        assert "verdict 1.0  reward 1.0" in pane(pilot, "verdict").text
        host.submit(Command("relabel", "copy-03-4", reason="half", arguments={"reward": 0.5}))
        await settle(app_of(pilot))
        assert "verdict 1.0  reward .50*" in pane(pilot, "verdict").text


@pytest.mark.slow
async def test_the_mouse_chooses_a_trial_by_its_glyph_and_by_its_line(
    reviewing: ReviewOpener,
) -> None:
    async with reviewing((160, 45)) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, ReviewScreen)
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
    reviewing: ReviewOpener, host: ReviewHost
) -> None:
    async with reviewing(services=Services(add_rule=add_rule)) as pilot:
        await press(pilot, "A")
        dialog = pilot.app.screen
        assert isinstance(dialog, RuleDialog)
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
        assert asked(host)[-1][:2] == ("accept", "copy-03-4")
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
    written: list[tuple[Path, Rule]] = []

    def refuse(file: Path, rule: Rule) -> None:
        written.append((file, rule))
        raise UserError("mine.toml: rule 1: there is no such suspect")

    host = ReviewHost(run)
    app = app_on(host, services=Services(add_rule=refuse))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(app)
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
async def test_who_only_looks_sees_everything_and_asks_nothing(
    reviewing: ReviewOpener, host: ReviewHost
) -> None:
    host.read_only = "ada has the controls"
    async with reviewing(services=Services(add_rule=add_rule)) as pilot:
        assert "▸ copy-03" in pane(pilot, "review-groups").text
        await press(pilot, "a", "L", "A", "f", "space")
        assert isinstance(pilot.app.screen, ReviewScreen)
        assert host.commands == []
        assert any("ada has the controls" in text for text in toasts(pilot))


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
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(app)
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
async def test_the_review_is_in_the_key_bar_where_a_step_may_wait_for_one(
    reviewing: ReviewOpener, host: ReviewHost
) -> None:
    async with reviewing((160, 45)) as pilot:
        assert "V review" not in pane(pilot, "keys").text
        await press(pilot, "escape")
        assert "V review" in pane(pilot, "keys").text
        await press(pilot, "g")
        assert "V review" in pane(pilot, "keys").text
        await press(pilot, "R")
        assert "V review" not in pane(pilot, "keys").text


@pytest.mark.slow
async def test_a_groups_foot_shows_what_was_relabelled_and_why_on_focus(
    reviewing: ReviewOpener,
) -> None:
    async with reviewing((80, 24)) as pilot:
        await press(pilot, "L", "0", "tab", *"it only guessed", "enter", "g")
        assert isinstance(pilot.app.screen, GroupScreen)
        assert "reward .00 *" in pane(pilot, "foot").text
        assert "* relabelled: it only guessed" in pane(pilot, "foot").text
        await press(pilot, "left")
        assert "reward .00 *" in pane(pilot, "foot").text
        assert "relabelled" not in pane(pilot, "foot").text


@pytest.mark.slow
async def test_a_trial_can_be_relabelled_wherever_it_is_chosen(
    reviewing: ReviewOpener, host: ReviewHost
) -> None:
    async with reviewing((160, 45)) as pilot:
        await press(pilot, "enter", "L", "0", "tab", *"why", "enter")
        assert asked(host)[-1] == ("relabel", "copy-03-4", "why", {"reward": 0.0})
        assert "* relabelled" in pane(pilot, "head").text
        assert "relabelled: why" in pane(pilot, "facts").text


@pytest.mark.slow
async def test_a_replay_shows_the_review_at_the_clock(reviewed: ReviewedRun) -> None:
    opened_at = reviewed.now
    reviewed.command(Command(verb="exclude", target="copy-03-4", actor="ada", reason="cheat"))
    reviewed.now += 60
    reviewed.command(Command(verb="accept", target=RUN, actor="ada", arguments={"step": STEP}))
    reviewed.now += 60
    run = ReplayedRun(reviewed.run)
    app = TbtuiApp(ReviewHost(reviewed), live=False, recorded=run)
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await settle(app)
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
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app)
        await press(pilot, "V")
        text = pane(pilot, "review-groups").text
        assert "tbtui ctl config set review=suspects" in text
        assert "tbtui run review=always" in text
        assert "review waits" not in pane(pilot, "status").text
    run.close()


@pytest.mark.slow
async def test_two_steps_may_wait_at_once(reviewing: ReviewOpener, reviewed: ReviewedRun) -> None:
    async with reviewing((160, 45)) as pilot:
        groups = reviewed.groups()[3:4]
        reviewed.write(_opened(STEP + 1, groups))
        await settle(app_of(pilot))
        assert "step 4 waits too (o)" in str(pane(pilot, "review-groups").border_title)
        await press(pilot, "o")
        assert "review of step 4" in str(pane(pilot, "review-groups").border_title)
        await press(pilot, "o")
        assert "review of step 3" in str(pane(pilot, "review-groups").border_title)


def _opened(step: int, groups: tuple[Any, ...]) -> Any:
    from tbtui.journal.events import ReviewOpened

    return ReviewOpened(step=step, groups=groups)


@pytest.mark.parametrize(
    ("size", "theme"),
    [
        pytest.param((80, 24), "tbtui-dark", id="80x24"),
        *(
            pytest.param(size, theme, id=f"{size[0]}-{theme}", marks=pytest.mark.slow)
            for size in ((80, 24), (160, 45))
            for theme in ("tbtui-dark", "tbtui-light", "tbtui-16")
            if (size, theme) != ((80, 24), "tbtui-dark")
        ),
    ],
)
def test_a_review_looks_as_it_did(
    snap_compare: Callable[..., bool], tmp_path: Path, size: tuple[int, int], theme: str
) -> None:
    run = ReviewedRun(tmp_path / "reviewed", timeout=300.0)
    for command in (
        Command(verb="exclude", target="copy-03-4", actor="ada", reason="it read the solution"),
        Command(
            verb="relabel",
            target="copy-03-8",
            actor="ada",
            reason="the network was down",
            arguments={"reward": 1.0},
        ),
    ):
        run.command(command)
    app = TbtuiApp(ReviewHost(run), live=False, theme=theme, clock=lambda: START + 12.0)

    async def prepare(pilot: Pilot[Any]) -> None:
        await settle(app)
        await press(pilot, "V", "up")
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=prepare)
    run.close()


async def test_the_chosen_trial_is_previewed(
    reviewing: ReviewOpener, reviewed: ReviewedRun
) -> None:
    async with reviewing((160, 45)) as pilot:
        app = app_of(pilot)
        screen = app.screen
        assert isinstance(screen, ReviewScreen)
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


async def test_in_a_low_window_the_preview_takes_no_row_that_a_table_needs(
    reviewing: ReviewOpener,
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


async def test_a_small_window_has_no_preview_but_the_two_lines(reviewing: ReviewOpener) -> None:
    async with reviewing() as pilot:
        assert not pilot.app.screen.query_one("#preview").display
        assert pane(pilot, "lines").size.height == 2
