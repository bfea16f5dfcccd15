"""Hints name the keys that a person has, not those that the app came with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from textual.app import App

from tbtui.ui.input.keys import KEYS
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.trial import TrialScreen
from tbtui.ui.user import User
from tests.ui.opening import Opener, app_of
from tests.ui.picture import settle

OWN = [key for key in KEYS if key.bound]
LETTERS = (*range(0x430, 0x588), *range(0x250, 0x2AE))
NEW = [chr(code) for code in LETTERS if chr(code).islower()][: len(OWN)]
"""Letters that nothing else on a screen has."""
HINT = re.compile(
    r"(\S+) (?:follows|quits|takes|opens|shows all|all\b|shows the next|to the end|again"
    r"|calls it off|gives it back|steer a trial|pauses|plays|resumes|goes back|lists keys)"
)


def screen_text(app: App[Any]) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


@pytest.mark.slow
async def test_remapped_keys_are_the_ones_that_are_named(opened: Opener, tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(
        "".join(f'{key.id} = "{letter}"\n' for key, letter in zip(OWN, NEW, strict=True))
    )
    user = User.load(tmp_path, tmp_path / "state")
    assert user.problems == ()
    named = {key.id: key.shown for key in user.keys.keys}
    assert [named[key.id] for key in OWN] == NEW
    async with opened(size=(160, 45), user=user) as pilot:
        app = app_of(pilot)
        seen: list[str] = []

        async def look() -> None:
            await settle(app)
            await pilot.pause()
            seen.append(screen_text(app))

        cockpit = app.screen
        assert isinstance(cockpit, Cockpit)
        await look()
        assert f"{named['quit']} quit" in seen[-1]
        app.selection.choose(next(iter(app.live_run.state.trials)))
        await cockpit.action_filter()
        await pilot.press(*"nothing like this")
        await look()
        assert f"{named['overview']} all" in seen[-1]
        assert f"{named['overview']} shows all" in seen[-1]
        cockpit.action_back()
        retried = next(t for t in app.live_run.state.trials.values() if t.attempt > 1)
        app.push_screen(TrialScreen(retried.trial))
        await look()
        trial = app.screen
        assert isinstance(trial, TrialScreen)
        trial.action_command(-1)
        await look()
        assert f"{named['scrub-now']} to the end" in seen[-1]
        assert f"{named['attempt']} shows the next" in seen[-1]
        for action in ("open_group", "commands_given", "runs", "search", "help", "tour"):
            await app.run_action(f"app.{action}")
            await look()
        assert all(letter in "".join(seen) for letter in (named["tour"], named["help"]))
        for text in seen:
            for found in HINT.findall(text):
                assert not any(found.strip("(") in key.shown.split(" ") for key in OWN), found
