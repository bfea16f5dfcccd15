"""Whatever hangs, the trial ends, with an outcome that is nobody's score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tbtui.journal.events import Outcome, TrialPhase
from tbtui.rollout.light_harbor import litellm_deferred
from tbtui.rollout.messages import (
    ControlRefused,
    ControlVerb,
    EnvironmentSpec,
    PauseEntered,
    PhaseEntered,
    SampleWanted,
    TrialSpec,
)
from tbtui.rollout.outcome import decide
from tests.rollout.hanging import HANGING
from tests.rollout.in_process import Here
from tests.rollout.scripted import DONE, HELLO, act, make_spec
from tests.tasks import make_task

pytestmark = pytest.mark.slow

with litellm_deferred():
    from tbtui.rollout import control, ending, session


def hanging_spec(folder: Path, **kwargs: Any) -> TrialSpec:
    task = make_task(folder / "task")
    toml = (task / "task.toml").read_text().replace("timeout_sec = 20.0", "timeout_sec = 1.0")
    # Only where the start hangs is its limit waited for: a loaded machine may take a while.
    build_sec = 1.0 if kwargs.get("hang") == "start" else 20.0
    toml = toml.replace("[environment]", f"[environment]\nbuild_timeout_sec = {build_sec}")
    (task / "task.toml").write_text(toml)
    changes = kwargs.pop("changes", {})
    environment = EnvironmentSpec(None, HANGING, kwargs)
    return make_spec("hang", task, folder, environment=environment, **changes)


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    # Long enough for a loaded machine to do in time what does not hang.
    monkeypatch.setattr(ending, "PROBE_SEC", 1)
    monkeypatch.setattr(session, "EXEC_SEC", 1.0)
    monkeypatch.setattr(control, "ANSWER_SEC", 1.0)


@pytest.mark.parametrize(
    ("hang", "at", "outcome"),
    [
        ("start", "", Outcome.SETUP_ERROR),
        ("deaf start", "", Outcome.SANDBOX_LOST),
        ("exec", "send-keys", Outcome.SANDBOX_LOST),
        ("exec", "capture-pane -p -S", Outcome.SANDBOX_LOST),
        ("exec", "test.sh", Outcome.SANDBOX_LOST),
        ("deaf exec", "test.sh", Outcome.SANDBOX_LOST),
        ("download_dir", "", Outcome.SANDBOX_LOST),
        ("deaf upload_dir", "", Outcome.SANDBOX_LOST),
    ],
)
async def test_a_hang_is_an_outcome(tmp_path: Path, hang: str, at: str, outcome: Outcome) -> None:
    deaf, _, hang = hang.rpartition(" ")
    spec = hanging_spec(tmp_path, hang=hang, at=at, deaf=bool(deaf), changes={"budget_sec": 4.0})
    here = Here(spec, [HELLO, DONE, DONE])
    facts = await here.facts()
    decision = decide(facts)
    assert decision.reward is None
    assert decision.verdict is None
    assert decision.outcome is outcome
    assert (spec.trials_dir / spec.trial / "result.json").exists()


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_teardown_that_hangs_keeps_the_verdict(tmp_path: Path, deaf: bool) -> None:
    here = Here(hanging_spec(tmp_path, hang="stop", deaf=deaf), [HELLO, DONE, DONE])
    facts = await here.facts()
    assert decide(facts).outcome is Outcome.SOLVED
    phases = [m.phase for m in here.messages if isinstance(m, PhaseEntered)]
    assert phases[-1] is TrialPhase.TEARDOWN
    assert here.hung == deaf


async def test_a_cancellation_that_hangs_costs_its_trial_only(tmp_path: Path) -> None:
    here = Here(hanging_spec(tmp_path, hang="stop", deaf=True), [HELLO])
    await here.until(SampleWanted, turn=2)
    here.link.control.obey("cancel")
    await here.link.control.settled()
    here.task.cancel()
    facts = await here.facts()
    assert decide(facts).outcome is Outcome.SANDBOX_LOST
    assert here.hung


@pytest.mark.parametrize("verb", ["stop", "cancel"])
async def test_a_hanging_command_can_be_ended(tmp_path: Path, verb: ControlVerb) -> None:
    here = Here(hanging_spec(tmp_path, hang="exec", at="send-keys"), [HELLO])
    await here.until(PhaseEntered, phase=TrialPhase.ACTING)
    here.link.control.obey(verb)
    if verb == "cancel":
        here.task.cancel()
    facts = await here.facts()
    wanted = Outcome.SANDBOX_LOST if verb == "stop" else Outcome.CANCELLED
    assert decide(facts).outcome is wanted
    assert decide(facts).reward is None


async def test_a_freeze_that_hangs_is_refused(tmp_path: Path) -> None:
    here = Here(hanging_spec(tmp_path, hang="freeze"), [act("sleep 0.1\n", duration=2), DONE, DONE])
    await here.until(PhaseEntered, phase=TrialPhase.ACTING)
    here.link.control.obey("freeze")
    facts = await here.facts()
    (refused,) = [m for m in here.messages if isinstance(m, ControlRefused)]
    assert refused.verb == "freeze"
    assert "did not answer" in refused.reason
    assert facts.finish == "completed"
    assert not [m for m in here.messages if isinstance(m, PauseEntered)]
