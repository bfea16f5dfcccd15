"""What a probe's figures lead to: the verdict, the settings to change, the command to run."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from tbtui.journal.events import ArmMeasured, Estimate, ProbeArm, ProbeMeasured, ProbeStarted
from tbtui.view.probe import closing, head, judge, next_command, rows

SETTINGS: dict[str, Any] = {
    **{"agent": "terminus-2", "temperature": 1.0, "group_size": 8, "batch_size": 4},
    **{"max_tokens": 512, "context_limit": 2048, "tasks_dir": "/tasks/workshop"},
    **{"policy": "torch", "model_name": "org/model", "budget": {"hours": 0.25}},
}


def estimate(value: float) -> Estimate:
    return Estimate(value=value, low=max(0.0, value - 0.2), high=min(1.0, value + 0.2))


def arm(
    name: str = "terminus-2@1",
    *,
    passed: float = 0.0,
    signal: float | None = 0.0,
    readable: float | None = 1.0,
    cut: float = 0.0,
    **changes: Any,
) -> ArmMeasured:
    """24 trials of 60 answers, all scored; rates are shares of these."""
    agent, _, temperature = name.partition("@")
    fields: dict[str, Any] = {
        **{"agent": agent, "temperature": float(temperature), "trials": 24, "scored": 24},
        **{"broken": 0, "answers": 60, "cut": round(60 * cut), "overflowed": 0, "tokens": 9000},
        "readable": None if readable is None else round(60 * readable),
        "pass_at": {1: estimate(passed), 4: estimate(min(1.0, 2 * passed))},
        "signal": None if signal is None else estimate(signal),
        **{"signal_size": 4, "trial_sec": 20.0, "step_sec": 60.0},
    }
    return ArmMeasured(**fields | changes)


def unscored(name: str = "terminus-2@1", **changes: Any) -> ArmMeasured:
    nothing: dict[str, Any] = {"scored": 0, "pass_at": {}, "answers": 0}
    return arm(name, signal=None, readable=0.0, **nothing | changes)


COLD, EASY = "terminus-2@0.7", "shell@1"


@pytest.mark.parametrize(
    ("arms", "untried", "kind", "words", "changes"),
    [
        # There is a signal.
        ([arm(passed=0.3, signal=0.5)], "", "go", "50% of groups of 4", {}),
        ([arm(passed=0.3, signal=0.3), arm(COLD, passed=0.4, signal=0.45)], "", "go", "30%", {}),
        (
            [arm(passed=0.1, signal=0.1), arm(COLD, passed=0.5, signal=0.8)],
            *("", "temperature", "80% of groups", {"temperature": "0.7"}),
        ),
        (
            [arm(readable=0.1), arm(COLD, passed=0.2, signal=0.3)],
            *("", "temperature", "0% with terminus-2@1", {"temperature": "0.7"}),
        ),
        (
            [arm(readable=0), arm(EASY, passed=0.2, signal=0.5)],
            *("", "agent", "another agent", {"agent": "shell"}),
        ),
        (
            # What was asked for is kept where it does: the agent before the temperature.
            [arm(), arm(COLD, passed=0.1, signal=0.2), arm(EASY, passed=0.9, signal=0.9)],
            *("", "temperature", "20%", {"temperature": "0.7"}),
        ),
        (
            [arm(passed=0.3, signal=0.5, step_sec=4000.0)],
            *("", "smaller_steps", "1h06m", {"batch_size": "1"}),
        ),
        # There is none.
        (
            [arm(readable=0.0), arm(COLD, readable=0.1)],
            *("", "warm_start", "10% of 60", {"demos": "train"}),
        ),
        ([arm(readable=0.0)], "shell", "other_agent", "easier agent", {"probe": "shell@1"}),
        ([arm(readable=0.9)], "", "easier_tasks", "readable (90%", {"tasks_dir": "starter"}),
        ([arm(readable=None)], "", "easier_tasks", "nothing is solved", {"tasks_dir": "starter"}),
        ([arm(passed=1.0)], "", "harder_tasks", "pass@1 1.00", {"tasks_dir": "workshop"}),
        ([arm(passed=0.5)], "", "larger_groups", "some are solved always", {"group_size": "16"}),
        ([arm(readable=0.3, cut=0.7)], "", "longer_answers", "42 of 60", {"max_tokens": "1024"}),
        ([arm(readable=0.0, cut=0.7)], "", "warm_start", "0% of 60", {"demos": "train"}),
        # Cut off behind what the agent reads.
        ([arm(readable=0.8, cut=0.7)], "", "easier_tasks", "80%", {"tasks_dir": "starter"}),
        # Nothing is known of the model.
        (
            [unscored(broken=24, reason="sandbox_lost: gone")],
            *("", "infrastructure", "says nothing of the model: sandbox_lost: gone", {}),
        ),
        (
            [unscored(overflowed=24, reason="context_overflow: 764 tokens")],
            *("", "context", "764 tokens", {"context_limit": "4096"}),
        ),
        (
            [unscored(overflowed=24, reason="context_overflow: 764 tokens")],
            *("shell", "context", "short prompt", {"probe": "shell@1"}),
        ),
        (
            [unscored(broken=24, reason="too_slow: no whole answer", trial_sec=30.0)],
            *("", "longer_trials", "no whole answer", {"trial_timeout_sec": "120"}),
        ),
        (
            [unscored(trials=0)],
            *("", "larger_budget", "no trial came to its end in 15m00s", {"budget.hours": "1"}),
        ),
        # What infrastructure broke is in no rate.
        ([arm(passed=0.3, signal=0.5, scored=12, broken=12)], "", "go", "50%", {}),
        (
            [unscored(broken=24), arm(COLD, passed=0.3, signal=0.4)],
            *("", "temperature", "40%", {"temperature": "0.7"}),
        ),
    ],
)  # fmt: skip
def test_a_verdict_and_what_to_change(
    arms: list[ArmMeasured], untried: str, kind: str, words: str, changes: dict[str, str]
) -> None:
    verdict = judge(arms, SETTINGS, untried)
    assert (verdict.kind, dict(verdict.changes)) == (kind, changes)
    assert words in verdict.why
    assert verdict.goes == (kind == "go")


def started(*typed: str) -> ProbeStarted:
    arms = (ProbeArm(agent="terminus-2", temperature=1.0),)
    return ProbeStarted(arms=arms, tasks=("copy-01",), trials=4, budget={}, typed=typed)


@pytest.mark.parametrize(
    ("arms", "settings", "typed", "command"),
    [
        ([arm(signal=0.5)], {}, ["model_name=org/model"], "tbtui run model_name=org/model"),
        (
            [arm(), arm(COLD, signal=0.5)],
            *({}, ["model_name=m", "temperature=1.0"], "tbtui run model_name=m temperature=0.7"),
        ),
        (
            [arm(readable=0.3, cut=0.7)],
            *({}, ["model_name=m", "max_tokens=512", "n_epochs=2"]),
            "tbtui probe model_name=m max_tokens=1024",
        ),
        ([unscored(broken=24)], {}, ["model_name=m"], "tbtui doctor"),
        (
            [arm(readable=0.0, cut=0.9), arm(EASY, readable=0.8, cut=0.7)],
            *({"tasks_dir": "tasks/starter"}, ["model_name=m"]),
            "tbtui run model_name=m agent=shell demos=train",
        ),
        (
            [arm()],
            *({}, ["model_name=m", "tasks_dir=mine", "tasks=a", "eval_split=0.3"]),
            "tbtui probe model_name=m tasks_dir=starter",
        ),
        # What is served is trained here by its name on the hub, if it has one.
        (
            [arm(signal=0.5)],
            {"policy": "openai", "model_name": "org/model"},
            ["policy=openai", "model_name=org/model", "openai_base_url=http://a/v1"],
            "tbtui run model_name=org/model",
        ),
        (
            [arm(), arm(COLD, signal=0.5)],
            {"policy": "vllm", "model_name": "mine"},
            ["policy=vllm", "model_name=mine", "vllm_base_url=http://a/v1"],
            "tbtui eval policy=vllm model_name=mine vllm_base_url=http://a/v1 temperature=0.7"
            " eval_temperature=0.7",
        ),
    ],
)
def test_the_command_that_a_verdict_leads_to(
    arms: list[ArmMeasured], settings: dict[str, Any], typed: list[str], command: str
) -> None:
    both = SETTINGS | settings
    told = shlex.split(next_command(judge(arms, both), started(*typed), both))
    assert ["tbtui", *told[-len(command.split()) + 1 :]] == command.split()


def test_the_table_fits_into_eighty_columns() -> None:
    arms = (arm(passed=0.3, signal=0.5), arm(COLD, readable=None), unscored(EASY, broken=24))
    measured = ProbeMeasured(
        rounds=4, arms=arms, spent={"hours": 0.1, "rollouts": 72.0, "tokens": 27000.0},
        tokens_per_sec=47.0, memory_mb=2048.0,
    )  # fmt: skip
    table = [head(measured), *rows(measured)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    assert sum(widths) + len(widths) - 1 <= 80, widths
    assert table[0] == ["arm", "n", "read", "cut", "pass@1", "pass@4", "signal/4", "step"]
    assert table[1][:5] == ["terminus-2@1", "24", "100%", "0%", ".30 .10-.50"]
    assert table[2][2] == "", "an agent that doesn't say what it could read"
    assert table[3] == ["shell@1", "0/24", "", "", "", "", "", "~1m00s"]
    assert closing(measured, SETTINGS) == [
        "47 tokens/s · 2.0 GiB of memory at most · spent: 72 rollouts, time 6m00s, 27,000 tokens",
        "signal/4: share of groups of 4 whose rewards differ; of 8 no fewer do",
        "24 trials without an answer, or broken by infrastructure: in no rate",
    ]
