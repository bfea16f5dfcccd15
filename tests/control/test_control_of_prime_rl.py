"""What a control socket may ask of a run of Prime-RL's, beside steering its trials."""

from __future__ import annotations

from pathlib import Path

from tests.engines.prime_rl.steered import Steered


async def test_a_stop_is_answered_and_settings_are_refused(tmp_path: Path) -> None:
    steered = Steered(tmp_path)
    async with steered.followed():
        assert await steered.answer(await steered.ask("stop")) == (
            True,
            "the run ends; what it has done is kept",
        )
        ok, why = await steered.answer(await steered.ask("set"))
        assert (ok, why) == (
            False,
            "Prime-RL reads its settings when it starts: stop the run, and resume it",
        )
    # Its environment servers have nothing to do with either.
    assert steered.passed_on() == []
