"""What the installed Harbor must be like, and what its parsers make of garbage."""

from __future__ import annotations

import math
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tbtui.rollout.light_harbor import litellm_deferred
from tbtui.rollout.linked_llm import GuardedParser


@pytest.fixture(scope="module")
def seam() -> ModuleType:
    with litellm_deferred():
        from tbtui.rollout import seam

    return seam


@pytest.fixture(scope="module")
def parser(seam: ModuleType) -> GuardedParser:
    from harbor.agents.terminus_2.terminus_json_plain_parser import TerminusJSONPlainParser

    return GuardedParser(TerminusJSONPlainParser())


def test_the_installed_harbor_fits(seam: ModuleType) -> None:
    assert seam.drift() == []
    seam.check()


def test_drift_is_named(seam: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def _execute_commands(self: object, commands: object) -> None: ...

    changed = {"Terminus2._execute_commands": (_execute_commands, ("commands", "session"))}
    monkeypatch.setattr(seam, "_METHODS", changed)
    with pytest.raises(seam.HarborDriftError, match=r"_execute_commands has no .*`session`"):
        seam.check()


def test_a_worker_does_without_litellm() -> None:
    program = """
import sys, types
from tbtui.rollout.light_harbor import litellm_deferred
with litellm_deferred():
    import tbtui.rollout.trial
assert "litellm" not in sys.modules
assert "harbor.llms.lite_llm" not in sys.modules
real = types.ModuleType("harbor.llms.lite_llm")
real.LiteLLM = lambda model_name: f"the real {model_name}"
sys.modules["harbor.llms.lite_llm"] = real
from harbor.agents.terminus_2 import terminus_2
assert terminus_2.LiteLLM(model_name="one") == "the real one"
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def a_command(**fields: Any) -> str:
    inner = ", ".join(f'"{name}": {value}' for name, value in fields.items())
    return f'{{"analysis": "", "plan": "", "commands": [{{{inner}}}]}}'


@pytest.mark.parametrize("duration", ["NaN", "Infinity", "-Infinity", "-5", "1e400"])
def test_durations_are_finite(parser: GuardedParser, duration: str) -> None:
    result = parser.parse_response(a_command(keystrokes='"x"', duration=duration))
    assert result.error == ""
    assert math.isfinite(result.commands[0].duration)
    assert result.commands[0].duration >= 0


def test_what_cannot_be_typed_is_left_out_and_told(parser: GuardedParser) -> None:
    result = parser.parse_response(a_command(keystrokes=r'"a\u0000b\ud800\n"', duration="0"))
    assert result.commands[0].keystrokes == "ab?\n"
    assert "Command 1" in result.warning


pieces = st.sampled_from(
    ['{"analysis":', '"plan"', ":", "[", "]", "{", "}", '"', "\\", "\\u0000", "\\ud800", "NaN",
     "1e999", "9" * 5000, '"commands":[', '"keystrokes":"', '"duration":', "task_complete", "true",
     "<response>", "<commands>", "<keystrokes duration='x'>", "</keystrokes>", "</commands>",
     "</response>", "<task_complete>", "[" * 5000, '{"a":' * 3000, "\0", "\x1b[2J", "\ud800", "\n"]
)  # fmt: skip


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.lists(pieces | st.text(max_size=8), max_size=25).map("".join))
def test_every_completion_is_read_or_refused(parser: GuardedParser, text: str) -> None:
    result = parser.parse_response(text)
    for part in (result.error, result.warning, result.analysis, result.plan):
        part.encode()
    for command in result.commands:
        assert "\0" not in command.keystrokes
        command.keystrokes.encode()
        assert 0 <= command.duration < math.inf
    assert isinstance(result.is_task_complete, bool)
