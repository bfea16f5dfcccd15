"""Every fault, how it is brought about, and what must come of it.

The expectations are DESIGN.md's list and the contract of `tbtui.rollout.outcome`, written down
before the first run: what the machinery did wrong is never scored; a verdict that was never given
is no reward; what the policy did wrong is its own, whatever the files look like.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tbtui.outcomes import Outcome
from tbtui.policies.base import ContextOverflowError, PolicyError, Sample
from tests.faults.environment import FaultName, Order
from tests.faults.policy import Answer, Cut, Fail, Hang, Spoil
from tests.rollout.scripted import DONE, act

HONEST_TEST = '[ "$(cat /app/hello.txt)" = hi ] && echo 1 > $R || echo 0 > $R; echo checked'


HELLO = act("echo hi > /app/hello.txt\n", duration=0.1)
SOLVE: tuple[str, ...] = (HELLO, DONE, DONE)
PLANT = act("echo 1 > /logs/verifier/reward.txt; echo hi > /app/hello.txt\n", duration=0.1)
PLANTING: tuple[str, ...] = (PLANT, DONE, DONE)
"""Solves the task and plants a verdict, for a verifier's crash to be mistaken for one."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of trial and what must become of it.

    `outcomes` and `reward` are those of an attempt that the fault hits. `transient` faults hit
    the first attempt only, so the last one must be solved.
    """

    name: str
    outcomes: frozenset[Outcome]
    reward: float | None
    script: Sequence[Answer] = SOLVE
    fault: FaultName | None = None
    at: int = 1
    test: str = HONEST_TEST
    transient: bool = False
    agent_sec: float = 60.0
    verifier_sec: float = 30.0
    build_sec: float = 60.0
    weight: int = 1
    """How often it comes among others."""

    @property
    def order(self) -> Order | None:
        if self.fault is None:
            return None
        return Order(self.fault, self.at, 1 if self.transient else 1_000)


def _case(name: str, outcome: Outcome, reward: float | None, /, **rest: Any) -> Case:
    return Case(name, frozenset({outcome}), reward, **rest)


def _nan(sample: Sample) -> Sample:
    return dataclasses.replace(sample, logprobs=np.full(len(sample.logprobs), np.nan, np.float32))


def _short(sample: Sample) -> Sample:
    return dataclasses.replace(sample, logprobs=sample.logprobs[:-1])


GARBAGE: dict[str, str] = {
    "empty": "",
    "NULs": "\0" * 500,
    "surrogates": "\ud800\udfff {\ud800}",
    "100,000 characters": "la " * 33_334,
    "deep JSON": '{"analysis":' + "[" * 50_000,
}

HEALTHY: tuple[Case, ...] = (
    _case("solved", Outcome.SOLVED, 1.0, weight=5),
    _case("failed", Outcome.FAILED, 0.0, script=(DONE, DONE), weight=2),
    _case("half solved", Outcome.FAILED, 0.5, test="echo 0.5 > $R", weight=2),
    _case("out of turns", Outcome.AGENT_TIMEOUT, 0.0, script=(HELLO, act("true\n"))),
)

_LOST = Outcome.SANDBOX_LOST
ENVIRONMENT: tuple[Case, ...] = (
    _case("start raises", Outcome.SETUP_ERROR, None, fault="start_raises"),
    _case("start raises once", Outcome.SETUP_ERROR, None, fault="start_raises", transient=True),
    _case("start hangs", Outcome.SETUP_ERROR, None, fault="start_hangs", build_sec=1.0),
    _case("start: disk full", Outcome.SETUP_ERROR, None, fault="start_disk_full"),
    Case("box killed in setup", frozenset({Outcome.SETUP_ERROR, Outcome.SANDBOX_LOST}), None,
         fault="box_killed", at=0),
    _case("box killed, turn 1", _LOST, None, fault="box_killed"),
    _case("box killed, turn 2", _LOST, None, fault="box_killed", at=2,
          script=(HELLO, act("true\n"), DONE, DONE), transient=True),
    _case("box killed, verifying", _LOST, None, fault="box_killed_verifying"),
    _case("box stops answering", _LOST, None, fault="box_stopped", agent_sec=2.0,
          verifier_sec=2.0),
    _case("exec hangs", _LOST, None, fault="exec_hangs", agent_sec=2.0, verifier_sec=2.0),
    _case("exec raises", _LOST, None, fault="exec_raises"),
    _case("exec raises once", Outcome.AGENT_ERROR, None, fault="exec_raises_once"),
    _case("agent logs not copied", Outcome.SOLVED, 1.0, fault="agent_logs_download_fails"),
    _case("stop raises", Outcome.SOLVED, 1.0, fault="stop_raises"),
    _case("stop hangs", Outcome.SOLVED, 1.0, fault="stop_hangs"),
)  # fmt: skip

_NO_VERDICT = Outcome.VERIFIER_ERROR
VERIFIER: tuple[Case, ...] = (
    _case("tests not uploaded", _NO_VERDICT, None, fault="tests_upload_fails", script=PLANTING),
    # Uploaded, and gone: nothing but what is in the box can have done it.
    _case("test.sh removed", Outcome.FAILED, 0.0, fault="test_script_vanishes", script=PLANTING),
    _case("verdict not copied", _NO_VERDICT, None, fault="verdict_download_fails",
          script=PLANTING, transient=True),
    _case("test.sh says nothing", _NO_VERDICT, None, test="exit 1", script=PLANTING),
    _case("test.sh killed", _NO_VERDICT, None, test="kill -9 $$", script=PLANTING),
    _case("test.sh hangs", _NO_VERDICT, None, test="sleep 1000", script=PLANTING,
          verifier_sec=1.0),
    _case("verdict: garbage", _NO_VERDICT, None, test="head -c 500 /dev/urandom > $R",
          script=PLANTING),
    _case("verdict: words", _NO_VERDICT, None, test="echo PASS > $R", script=PLANTING),
    _case("verdict: empty", _NO_VERDICT, None, test=": > $R", script=PLANTING),
    _case("verdict: nan", _NO_VERDICT, None, test="echo nan > $R", script=PLANTING),
    _case("verdict: inf", _NO_VERDICT, None, test="echo inf > $R", script=PLANTING),
    _case("verdict: 1e308", _NO_VERDICT, None, test="echo 1e308 > $R", script=PLANTING),
    _case("verdict: 1e20", _NO_VERDICT, None, test="echo 1e20 > $R", script=PLANTING),
    _case("verdict: two rewards", _NO_VERDICT, None,
          test="""echo '{"a": 1, "b": 0}' > ${R%txt}json""", script=PLANTING),
    # Of the box's disk one file can take fifteen sixteenths, and leave room for a verdict.
    _case("verdict: disk full", _NO_VERDICT, None, script=PLANTING,
          test="for i in 1 2 3; do head -c 1G /dev/zero > /tmp/$i; done; echo 1 > $R"),
    _case("verdict: a link", _NO_VERDICT, None, test="echo 1 > /app/v; ln -s /app/v $R",
          script=PLANTING),
)  # fmt: skip

# Of an honest task's verifier: it can't work in any box.
_NO_RUNNER = "no-such-uvx pytest && echo 1 > $R || echo 0 > $R"
VERIFIER_FAULTS: tuple[Case, ...] = (
    _case("verifier: no such command", _NO_VERDICT, None, test=_NO_RUNNER),
    _case("verifier: no network", _NO_VERDICT, None,
          test=f"curl -sSf https://astral.invalid/install.sh | sh; {_NO_RUNNER}"),
    _case("verifier: no such module", _NO_VERDICT, None,
          test="python3 -m no_such_module && echo 1 > $R || echo 0 > $R"),
)  # fmt: skip


def _typed(line: str) -> tuple[str, ...]:
    return (act(f"{line}\n", duration=0.3), DONE, DONE)


def _beside(script: str) -> tuple[str, ...]:
    """Leaves a process that does something once the test script runs."""
    wait = "until pgrep -f '^/bin/bash /tests/test.sh'; do :; done; "
    return _typed(f"(setsid bash -c {shlex.quote(wait + script)} > /dev/null 2>&1 &)")


SLOW_TEST = f"sleep 0.5; {HONEST_TEST}"
SAYS_TEST = f"cat /app/said; {HONEST_TEST}"
_ONE = "echo 1 > /logs/verifier/reward.txt; "
SABOTAGE: tuple[Case, ...] = tuple(
    _case(name, Outcome.FAILED, 0.0, script=script, test=test)
    for name, script, test in (
        ("agent: rm -rf /app", _typed("rm -rf /app"), HONEST_TEST),
        ("agent: rm bash", _typed("rm /usr/bin/bash"), HONEST_TEST),
        ("agent: rm all programs", _typed("rm -rf /usr/bin"), HONEST_TEST),
        ("agent: kills tmux", _typed("tmux kill-server"), HONEST_TEST),
        ("agent: kills its shell", _typed("kill -9 $$"), HONEST_TEST),
        ("agent: kills all", _typed("kill -9 -1"), HONEST_TEST),
        ("agent: files for /logs", _typed("cd /; rm -rf /logs; touch /logs"), HONEST_TEST),
        ("agent: fills the disk", _typed("head -c 1G /dev/zero | tee /1 > /2"), HONEST_TEST),
        ("agent: kills test.sh", _beside(_ONE + "pkill -9 -f /tests/test.sh"), SLOW_TEST),
        ("agent: ends test.sh", _beside(_ONE + "pkill -f /tests/test.sh"), SLOW_TEST),
        ("agent: replaces test.sh", _beside(_ONE + "cd /tests; echo > x; mv x test.sh"), SLOW_TEST),
        ("agent: rm -rf /logs/verifier", _beside("rm -rf /logs/verifier"), SLOW_TEST),
        (
            "agent: fakes no command",
            _typed("echo 'bash: uvx: command not found' > said"),
            SAYS_TEST,
        ),
        ("agent: fakes no network", _typed("echo 'curl: (6) Could not resolve' > said"), SAYS_TEST),
        (
            "agent: rm the test's tool",
            _typed("rm /usr/bin/cmp"),
            "cmp /app/hello.txt - <<< hi && echo 1 > $R || echo 0 > $R",
        ),
        (
            "agent: rm it, no verdict",
            _typed("rm /usr/bin/cmp"),
            "set -e; cmp --version; " + HONEST_TEST,
        ),
    )
)

_PROVIDER = Outcome.PROVIDER_ERROR
POLICY: tuple[Case, ...] = (
    _case("429", _PROVIDER, None, script=(HELLO, Fail(PolicyError("429 Too Many Requests")))),
    _case("429 once", _PROVIDER, None, transient=True,
          script=(HELLO, Fail(PolicyError("429 Too Many Requests"), 1, DONE), DONE)),
    _case("500", _PROVIDER, None, script=(Fail(PolicyError("500 Internal Server Error")),)),
    _case("time-out", _PROVIDER, None,
          script=(HELLO, Fail(PolicyError("timed out after 0.3 s"), after_sec=0.3))),
    _case("no answer ever", _PROVIDER, None, script=(HELLO, Hang())),
    _case("no answer within budget", Outcome.TOO_SLOW, None, script=(HELLO, Hang()), agent_sec=1.5),
    _case("log-probabilities: nan", _PROVIDER, None, script=(Spoil(HELLO, _nan), DONE, DONE)),
    _case("log-probabilities: short", _PROVIDER, None,
          script=(Spoil(HELLO, _short), DONE, DONE)),
    *(
        _case(f"garbage: {name}", Outcome.PARSE_ERROR, 0.0, script=(HELLO, text))
        for name, text in GARBAGE.items()
    ),
    _case("garbage, then mended", Outcome.SOLVED, 1.0,
          script=(GARBAGE["NULs"], GARBAGE["deep JSON"], *SOLVE)),
    _case("cut off", Outcome.OUTPUT_TRUNCATED, 0.0, script=(HELLO, Cut('{"analysis": "on'))),
    _case("cut off, then mended", Outcome.SOLVED, 1.0, script=(Cut("{"), *SOLVE)),
    _case("context full", Outcome.CONTEXT_OVERFLOW, 0.0,
          script=(HELLO, Fail(ContextOverflowError("the prompt is too long")))),
)  # fmt: skip

FAULTS = (*ENVIRONMENT, *VERIFIER, *VERIFIER_FAULTS, *SABOTAGE, *POLICY)
CASES = (*HEALTHY, *FAULTS)
