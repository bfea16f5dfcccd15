"""Typing where no tmux client can stay: each key is a process of its own. And where that hangs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tbtui.journal.commands import Typed
from tbtui.journal.events import Outcome
from tbtui.rollout import keyboard, session
from tbtui.rollout.environments.sandbox import SandboxEnvironment
from tbtui.rollout.light_harbor import litellm_deferred
from tbtui.rollout.messages import EnvironmentSpec, KeysTyped, TakenOver, TypeKeys
from tbtui.rollout.outcome import decide
from tests.rollout.hanging import HANGING
from tests.rollout.in_process import Here
from tests.rollout.scripted import DONE, make_spec
from tests.tasks import make_task

with litellm_deferred():
    from tbtui.rollout import ending

pytestmark = pytest.mark.slow

ENTER = Typed("key", "Enter")


class ClientlessSandbox(SandboxEnvironment):
    """As a sandbox that can only be asked to run commands."""

    open_program = None  # type: ignore[assignment]


async def taken(folder: Path, environment: EnvironmentSpec) -> Here:
    spec = make_spec("typing", make_task(folder / "task"), folder, environment=environment)
    here = Here(spec, [DONE, DONE])
    here.link.control.obey("take_over", "ada")
    await here.until(TakenOver)
    return here


async def typed(here: Here, command: str, *parts: Typed) -> KeysTyped:
    here.link.type_keys(TypeKeys(here.link.spec.trial, command, parts))
    await here.until(KeysTyped, command=command)
    return next(m for m in here.messages if isinstance(m, KeysTyped) and m.command == command)


async def test_each_key_by_a_process(tmp_path: Path) -> None:
    here = await taken(tmp_path, EnvironmentSpec(None, f"{__name__}:ClientlessSandbox"))
    # A `;` at the end of a word would end tmux's command; the rest would mean something to a shell.
    hard = Typed("text", "echo 'a $HOME `id` \\ é';")
    assert not (await typed(here, "1", hard, Typed("text", " echo hi > hello.txt;"), ENTER)).error
    long = "".join(f"{number};" for number in range(4000))
    assert not (await typed(here, "2", Typed("text", "cat > /dev/null"), ENTER)).error
    assert not (await typed(here, "3", Typed("paste", long[:16_000]), Typed("key", "C-c"))).error
    await asyncio.sleep(0.3)
    here.link.control.obey("resume")
    facts = await here.facts()
    assert (facts.verdict, facts.human_touched) == (1.0, True)
    cast = (here.link.spec.trials_dir / "typing" / "recording.cast").read_text()
    assert "a $HOME `id` \\\\ \\u00e9\\r" in cast


async def test_a_terminal_that_hangs_holds_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyboard, "ANSWER_SEC", 0.5)
    monkeypatch.setattr(ending, "PROBE_SEC", 1)
    monkeypatch.setattr(session, "EXEC_SEC", 1.0)
    hangs = {"hang": "exec", "at": "send-keys -t terminus-2 -l"}
    here = await taken(tmp_path, EnvironmentSpec(None, HANGING, hangs))
    answer = await typed(here, "1", Typed("text", "a"))
    assert (answer.parts, answer.error) == ((), "the terminal did not answer within 0.5 s")
    here.link.control.obey("resume")
    facts = await here.facts()
    assert facts.human_touched  # it may have been typed
    assert decide(facts).outcome is Outcome.SANDBOX_LOST
