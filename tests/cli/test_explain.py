"""`tbtui run --explain`: what it says of reviews and of the rules in force."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tbtui.commands.explain import print_explanation
from tbtui.config import ConfigError, parse_settings
from tbtui.rollout.environments.base import EnvironmentUnavailable

RULES = """\
[[rule]]
name = "shortcuts"
when = { suspect = "few_turns", turns = { max = 2 } }
do = "exclude"
reason = "seen too often"

[[rule]]
do = "relabel"
reward = 0.5
reason = "half"
"""


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    print_explanation(parse_settings(arguments))
    return capsys.readouterr().out


@pytest.mark.linux
def test_without_a_review_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    said = explained(capsys)
    assert "No step waits for a review before it is trained (review=off)." in said


@pytest.mark.linux
def test_the_rules_in_force_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(RULES)
    said = explained(capsys, "review=suspects", f"review_rules={file}", "review_timeout_sec=60")
    assert "a person reviews suspect trials (review=suspects)." in said
    assert "After 60 s without an answer undecided suspects are excluded" in said
    assert f"The first of these rules that matches a trial decides ({file}):" in said
    assert (
        '  shortcuts: exclude when suspect = "few_turns", turns = { max = 2 } (seen too often)\n'
        "  2: relabel 0.5 any trial (half)\n"
    ) in said
    assert "No rule decides" in explained(capsys, "review=always")


@pytest.mark.linux
def test_rules_are_told_without_a_review_and_that_they_need_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(RULES)
    said = explained(capsys, f"review_rules={file}")
    assert "(review=off)." in said
    assert "With review=suspects or review=always the first of these rules" in said
    assert "\n  2: relabel 0.5 any trial (half)\n" in said


def test_a_rule_or_an_alarm_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"on_alarm\.fire: there is no such alarm"):
        print_explanation(parse_settings(["on_alarm.fire=halt"]))
    file = tmp_path / "rules.toml"
    file.write_text('[[rule]]\ndo = "drop"\n')
    with pytest.raises(ConfigError, match="rule 1: do = 'drop': unknown"):
        print_explanation(parse_settings(["review=always", f"review_rules={file}"]))


def test_an_engine_that_does_not_answer_is_said_and_the_rest_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    said = explained(capsys, "environment_type=docker")
    assert said.startswith("As it is, this machine can't start such a run: docker is installed but")
    assert "What happens to a trial, by its outcome" in said
    with pytest.raises(EnvironmentUnavailable, match="not of the form module:Class"):
        explained(capsys, "environment_type=a.b:")
