"""What the screen says in several places is the same, and of the same moment."""

from __future__ import annotations

import re

import pytest
from textual.pilot import Pilot

from tests.ui.opening import Opener, SimulatedHost, app_of, pane
from tests.ui.picture import settle


def written(pilot: Pilot[int], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What goes to the terminal beside the screen."""
    escapes: list[str] = []
    monkeypatch.setattr(app_of(pilot).attention, "_write", escapes.append)
    return escapes


async def test_counts_and_what_is_waited_for_agree_at_every_beat(
    steered: Opener, simulated: SimulatedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with steered(size=(160, 45)) as pilot:
        app, escapes = app_of(pilot), written(pilot, monkeypatch)
        seen = set()
        for _ in range(60):
            simulated.advance(0.3)
            app.tick()
            header = pane(pilot, "status").text
            grid = str(pane(pilot, "trials").border_title)
            timeline = pane(pilot, "timeline").text
            count = re.search(r"(?:sampling|step \d+) (\d+/\d+)", header)
            if count is not None:
                assert f"{count[1]} done" in grid, (header, grid)
                seen.add(count[1])
            if waiting := re.search(r"waiting for ([\w-]+/\d+) ", header):
                assert f"now: {waiting[1]}" in timeline, (header, timeline)
            selected = app.frames.frame().selected
            assert selected is not None
            title = str(pane(pilot, "terminal").border_title)
            (tile,) = [
                line
                for line in re.split(r"\n|   ", pane(pilot, "trials").text)
                if re.search(rf"\S {selected.label} ", f"{line} ")
            ] or [""]
            if (turn := re.search(r"turn (\d+)", title)) and (told := re.search(r" t(\d+) ", tile)):
                assert turn[1] == told[1], (title, tile)
            titles = [each for each in escapes if each.startswith("\x1b]2;")]
            if titles and app.frames.beat % 9 == 0 and (m := re.search(r"(\d+) running", grid)):
                assert int(m[1]) == 0 or f"{m[1]} running" in titles[-1], (grid, titles[-1])
        assert len(seen) > 5


async def test_header_notes_title_and_bell_tell_of_a_frozen_trial_that_is_waited_for(
    steered: Opener, simulated: SimulatedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with steered(size=(160, 45)) as pilot:
        app, escapes = app_of(pilot), written(pilot, monkeypatch)
        frozen = next(each for each in app.live_run.state.running_trials() if each.turn)
        app.selection.choose(frozen.trial)
        await pilot.press("z")
        for _ in range(400):
            simulated.advance(0.5)
            app.tick()
            if not [each for each in app.live_run.state.live_trials() if not each.paused]:
                break
        await settle(app)
        app.frames.call_for_attention()
        assert f"waiting for {frozen.label}, frozen · z resumes" in pane(pilot, "status").text
        notes = " ".join(pane(pilot, "notes").text.split())
        assert f"▲ {frozen.label} holds the step up, frozen " in notes
        assert " · z resumes" in notes
        titles = [each for each in escapes if each.startswith("\x1b]2;")]
        assert titles[-1].endswith(f": {frozen.label} holds the step up, frozen\a")
        assert titles[-1].startswith("\x1b]2;! ")
        call = f"\x1b]9;tbtui: {frozen.label} holds the step up, frozen\a"
        assert escapes[escapes.index(call) + 1] == "\a"
        assert escapes.count(call) == 1
        await pilot.press("space")
        simulated.advance(1.0)
        await settle(app)
        app.frames.call_for_attention()
        assert "holds the step up" not in pane(pilot, "notes").text
        assert [each for each in escapes if each.startswith("\x1b]2;")][-1].startswith(
            "\x1b]2;tbtui"
        )
        assert escapes.count(call) == 1
