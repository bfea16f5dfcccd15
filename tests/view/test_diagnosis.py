"""The diagnosis: rules over what a journal tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.findings import Finding, Rule
from tbtui.journal.events import (
    AgentCommand,
    AlarmRaised,
    AnyEvent,
    GroupScored,
    OutageBegan,
    OutageEnded,
    Outcome,
    PhaseSeconds,
    RunFinished,
    RunPhase,
    RunPhaseChanged,
    StepFinished,
    StepStarted,
    TasksSetAside,
    TrialFinished,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TrialResumed,
    TrialScore,
    TurnParsed,
)
from tbtui.view.diagnosis.rules import Diagnosis, diagnose, rank
from tbtui.view.times import Outlook
from tests.events import run_started, trial_finished, trial_queued

from .story import outlook


def found(events: list[AnyEvent]) -> dict[str, Finding]:
    return {each.rule: each for each in diagnose(outlook(events))}


def step(
    number: int,
    ends: Sequence[tuple[Outcome, float | None]],
    metrics: Mapping[str, float] | None = None,
    *,
    finish: bool = True,
) -> Iterator[AnyEvent]:
    yield StepStarted(step=number, groups={f"g{number}": "copy-01"})
    yield RunPhaseChanged(phase=RunPhase.SAMPLING, step=number - 1)
    for place in range(len(ends)):
        name = f"{number}-{place}"
        yield trial_queued(name, label=f"copy-01/{place}", step=number, group=f"g{number}")
        yield TrialPhaseChanged(trial=name, phase=TrialPhase.ACTING)
    for place, (outcome, reward) in enumerate(ends):
        yield trial_finished(
            f"{number}-{place}",
            reward,
            outcome=outcome,
            reason="because",
            seconds=PhaseSeconds(commands=1.0),
        )
    if finish:
        counted = {f"env/all/outcome/{o}": float(sum(e is o for e, _ in ends)) for o in Outcome}
        yield StepFinished(
            step=number,
            weights_version=number,
            metrics={"env/all/total_episodes": float(len(ends)), **counted, **(metrics or {})},
        )


GOOD: list[tuple[Outcome, float | None]] = [(Outcome.SOLVED, 1.0), (Outcome.FAILED, 0.0)] * 4
START = run_started(policy="vllm", settings={"max_steps": 9, "group_size": 8, "context_limit": 512})


def test_a_healthy_run_has_no_findings() -> None:
    assert diagnose(outlook([START, *step(1, GOOD), *step(2, GOOD)])) == ()
    assert diagnose(outlook([])) == ()


@pytest.mark.parametrize(
    ("outcome", "reward", "setting"),
    [
        (Outcome.CONTEXT_OVERFLOW, 0.0, "context_limit"),
        (Outcome.OUTPUT_TRUNCATED, 0.0, "max_tokens"),
        (Outcome.PARSE_ERROR, 0.0, "max_turns"),
        (Outcome.AGENT_TIMEOUT, 0.0, "max_turns"),
        (Outcome.VERIFIER_ERROR, None, None),
        (Outcome.SANDBOX_LOST, None, "n_parallel_envs"),
        (Outcome.SETUP_ERROR, None, "env_starts_per_sec"),
        (Outcome.PROVIDER_ERROR, None, None),
        (Outcome.REFUSED, None, None),
        (Outcome.TOO_SLOW, None, "trial_timeout_sec"),
    ],
)
def test_an_outcome_that_should_be_rare(
    outcome: Outcome, reward: float | None, setting: str | None
) -> None:
    few = [START, *step(1, GOOD), *step(2, [(outcome, reward), *GOOD])]
    assert str(outcome) not in found(few)
    finding = found([START, *step(1, GOOD), *step(2, [(outcome, reward)] * 2 + GOOD)])[str(outcome)]
    assert finding.text == "2 of 18 trials (11%)"
    assert finding.share == pytest.approx(2 / 18)
    assert finding.trials == ("2-0", "2-1")
    assert finding.trend == pytest.approx((0.0, 0.2))
    assert (finding.remedy and finding.remedy.setting) == setting
    assert finding.why
    assert finding.advice


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("no answer from http://h within 300 s (sample_timeout_sec)", "sample_timeout_sec=600"),
        (
            "no answer in the last 9.0 s of the trial's 60 s (trial_timeout_sec)",
            "trial_timeout_sec",
        ),
        ("the server failed (500: boom); its log says more", None),
    ],
)
def test_the_limit_that_ran_out_is_the_one_to_raise(reason: str, remedy: str | None) -> None:
    ends = [(Outcome.PROVIDER_ERROR, None)] * 2 + GOOD
    told = [
        msgspec.structs.replace(event, reason=reason) if isinstance(event, TrialFinished) else event
        for event in step(1, ends)
    ]
    finding = found([START, *told])["provider_error"]
    assert (finding.remedy and finding.remedy.text.startswith(remedy or "")) == (remedy and True)


def test_a_context_without_a_limit_of_its_own_can_only_be_summarised() -> None:
    full = [(Outcome.CONTEXT_OVERFLOW, 0.0)] * 4
    limited = run_started(policy="vllm", settings={"context_limit": 512})
    own = run_started(policy="vllm", settings={})
    overflows = [found([start, *step(1, full)])["context_overflow"] for start in (limited, own)]
    remedies = [each.remedy.text for each in overflows if each.remedy]
    assert remedies == ["context_limit=1024", "enable_summarize=true"]


def test_answers_that_could_not_be_read_are_counted() -> None:
    def parsed(trial: str, error: str | None) -> TurnParsed:
        command = AgentCommand(keystrokes="ls\n", duration_sec=0.1)
        return TurnParsed(
            trial=trial, turn=1, analysis="", plan="", commands=(command,), task_complete=False,
            error=error,
        )  # fmt: skip

    events: list[AnyEvent] = [START]
    for event in step(1, GOOD):
        events.append(event)
        if isinstance(event, TrialPhaseChanged):
            events.append(parsed(event.trial, "no JSON" if event.trial in ("1-0", "1-1") else None))
    finding = found(events)["unreadable_answers"]
    assert finding.text == "2 parse errors in 2 of 8 trials (25%)"
    assert finding.trials == ("1-0", "1-1")


def passing(count: int, of: int = 8) -> list[tuple[Outcome, float | None]]:
    solved: list[tuple[Outcome, float | None]] = [(Outcome.SOLVED, 1.0)] * count
    return [*solved, *[(Outcome.FAILED, 0.0)] * (of - count)]


@pytest.mark.parametrize(
    ("passed", "bad", "good", "settings", "advice", "larger"),
    [
        (1, 0.75, 0.0, {}, ["75% all failing: easier tasks", "demos=train", "below 1"], True),
        (0, 1.0, 0.0, {}, ["100% all failing", "examples"], False),
        (0, 1.0, 0.0, {"temperature": 0.3, "agent": "a:B"}, ["all failing"], False),
        (7, 0.0, 0.75, {}, ["75% all solved: harder tasks"], True),
        (4, 0.33, 0.42, {}, ["33% all failing: easier", "42% all solved: harder tasks"], False),
    ],
)
def test_groups_without_signal_and_what_would_help(
    passed: int,
    bad: float,
    good: float,
    settings: dict[str, object],
    advice: list[str],
    larger: bool,
) -> None:
    shares = {"constant": bad + good, "all_bad": bad, "all_good": good}
    metrics = {f"env/all/by_group/frac_{name}": share for name, share in shares.items()}
    equal = GroupScored(
        step=2, group="g2", task="copy-01", disposition="constant", baseline=0.0, trials={}
    )
    start = run_started(policy="torch", settings={"group_size": 8, **settings})
    steps = (each for number in (1, 2) for each in step(number, passing(passed), metrics))
    finding = found([start, *steps, equal])["no_signal_groups"]
    assert finding.trials == tuple(f"2-{place}" for place in range(8))
    assert finding.share == pytest.approx(bad + good)
    assert all(part in finding.advice for part in advice)
    # What was asked for is not advised; nothing is said of a kind of group that there is not.
    said = {"all solved": good > 0, "all failing": bad > 0, "demos=train": bad > 0 and not settings}
    said["temperature"] = said["demos=train"]
    assert {word: word in finding.advice for word in said} == said
    # What has never passed in 16 trials does not by being tried twice as often.
    assert (finding.remedy and finding.remedy.text) == ("group_size=16" if larger else None)
    assert (finding.remedy is None) or "in 16 trials" in finding.remedy.preview


def test_a_step_without_a_figure_says_nothing_of_it() -> None:
    """No group of the first steps had a signal, and so none of them has anything of a gradient."""
    certain = {"optim/neg_logprob": 2.5, "optim/kl_sample_train_v2": 1e-5}
    steps = [each for number in (1, 2, 3) for each in step(number, passing(0))]
    steps += [*step(4, passing(4), certain), *step(5, passing(0))]
    assert {"entropy_collapse", "sampler_trainer_gap"}.isdisjoint(found([START, *steps]))


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"temperature": 1.0}, {"sampler_trainer_gap", "entropy_collapse"}),
        # Of an earlier version, which compared what was drawn from with the model.
        ({"temperature": 0.5}, set()),
        ({"temperature": 0.5, "top_p": 1.0}, {"sampler_trainer_gap"}),
        ({"temperature": 1.0, "top_p": 0.9}, {"sampler_trainer_gap"}),
        ({"temperature": 1.0, "top_p": 1.0, "top_k": 20}, {"sampler_trainer_gap"}),
        (
            {"temperature": 1.0, "top_p": 1.0, "top_k": None},
            {"sampler_trainer_gap", "entropy_collapse"},
        ),
    ],
)
def test_what_was_asked_for_is_no_finding(
    settings: dict[str, float | None], names: set[str]
) -> None:
    cold = {"optim/neg_logprob": 0.002, "optim/kl_sample_train_v2": 0.3, "optim/entropy": 0.4}
    start = run_started(policy="torch", settings=settings)
    findings = found([start, *(e for n in (1, 2, 3) for e in step(n, GOOD, cold))])
    assert {"sampler_trainer_gap", "entropy_collapse"} & findings.keys() == names


def test_groups_that_all_end_at_a_limit_are_helped_by_that_limit_alone() -> None:
    metrics = {"env/all/by_group/frac_constant": 1.0, "env/all/by_group/frac_all_bad": 1.0}
    equal = GroupScored(
        step=1, group="g1", task="copy-01", disposition="constant", baseline=0.0, trials={}
    )
    cut: list[tuple[Outcome, float | None]] = [(Outcome.OUTPUT_TRUNCATED, 0.0)] * 8
    finding = found([START, *step(1, cut, metrics), equal])["no_signal_groups"]
    assert finding.text == "100% of the groups of 1 step"
    assert finding.advice == "mostly all ending by output truncated: raise max_tokens"
    assert finding.remedy is None


def test_the_samplers_gap_is_measured_against_the_age_of_its_weights() -> None:
    gap = {"optim/kl_sample_train_v2": 0.05}
    assert "sampler_trainer_gap" in found([START, *step(1, GOOD, gap)])
    assert "sampler_trainer_gap" not in found(
        [START, *step(1, GOOD, {**gap, "async/staleness_max": 2.0})]
    )


def test_certainty_distance_and_alarms() -> None:
    metrics = {"optim/neg_logprob": 0.002, "optim/kl_policy_base": 0.8}
    alarm = AlarmRaised(alarm=Rule.REWARD_HACKING, step=3, text="jumped", numbers={}, action="warn")
    steps = [each for number in (1, 2, 3) for each in step(number, GOOD, metrics)]
    findings = found([START, *steps, alarm])
    assert {"entropy_collapse", "far_from_start", "reward_hacking"} <= findings.keys()
    hacking = findings["reward_hacking"].remedy
    assert hacking is not None
    assert hacking.text == "review=suspects"
    later = [each for number in (4, 5) for each in step(number, GOOD)]
    assert "reward_hacking" not in found([START, *steps, alarm, *later])


@pytest.mark.parametrize(
    ("settings", "clipped", "proposed"),
    [
        ({"loss_fn": "ppo", "clip_high": 0.2}, 0.1, "clip_high=0.28"),
        ({"loss_fn": "ppo", "clip_high": 0.2}, 0.0, "learning_rate=0.0001"),
        ({"loss_fn": "ppo", "clip_high": 0.3}, 0.1, "learning_rate=0.0001"),
        ({"loss_fn": "importance_sampling"}, 0.1, "learning_rate=0.0001"),
    ],
)
def test_what_is_certain_is_clipped_higher_where_anything_is_clipped(
    settings: dict[str, object], clipped: float, proposed: str
) -> None:
    metrics = {"optim/neg_logprob": 0.002, "optim/clip_fraction": clipped}
    steps = [each for number in (1, 2, 3) for each in step(number, GOOD, metrics)]
    start = run_started(policy="vllm", settings=settings)
    remedy = found([start, *steps])["entropy_collapse"].remedy
    assert remedy is not None
    assert remedy.text == proposed


def straggling(spent: PhaseSeconds) -> list[AnyEvent]:
    events: list[AnyEvent] = [START]
    events += step(1, GOOD, finish=False)
    # The last one runs on for 60 s more: an event a second.
    slow = [trial_queued("slow", label="slow/1", step=1, group="g1")]
    events[-1:] = [*slow, TrialPhaseChanged(trial="slow", phase=TrialPhase.ACTING), events[-1]]
    events += [RunPhaseChanged(phase=RunPhase.SAMPLING, step=0)] * 60
    events.append(trial_finished("slow", 0.0, seconds=spent))
    events.append(StepFinished(step=1, weights_version=1, metrics={"time/total": 90.0}))
    return events


def test_one_straggler_costs_the_step_and_a_deadline_is_proposed() -> None:
    finding = found(straggling(PhaseSeconds(commands=60.0)))["stragglers"]
    assert finding.share > 0.5
    assert finding.trials == ("slow",)
    assert finding.remedy is not None
    assert finding.remedy.setting == "step_deadline_sec"
    assert "1 of 9 trials are stopped" in finding.remedy.preview


def test_a_trial_that_a_person_paused_is_no_straggler() -> None:
    events = straggling(PhaseSeconds(commands=1.0, paused=59.0))
    slow = next(
        n
        for n, event in enumerate(events)
        if isinstance(event, TrialPhaseChanged) and event.trial == "slow"
    )
    events.insert(slow + 2, TrialPaused(trial="slow"))
    events.insert(-2, TrialResumed(trial="slow"))
    assert "stragglers" not in found(events)
    # Another one runs on beside it.
    events.insert(slow, trial_queued("late", label="late/1", step=1, group="g1"))
    events.insert(slow + 2, TrialPhaseChanged(trial="late", phase=TrialPhase.ACTING))
    events.insert(-1, trial_finished("late", 0.0, seconds=PhaseSeconds(commands=60.0)))
    assert found(events)["stragglers"].trials == ("late",)


def test_no_deadline_is_proposed_for_a_slow_verifier() -> None:
    finding = found(straggling(PhaseSeconds(commands=5.0, verifying=55.0)))["stragglers"]
    assert finding.remedy is None
    assert finding.advice == "make its verifier faster: 55.0 s of slow/1"


def test_queue_and_places() -> None:
    queued = {"time/trials/queue": 60.0, "time/trials/commands": 40.0, "time/sampling": 10.0}
    finding = found([START, *step(1, GOOD, queued)])
    assert finding["queue_wait"].share == 0.6
    assert finding["queue_wait"].remedy is not None
    assert finding["queue_wait"].remedy.text == "n_parallel_envs=32"
    # 40 s of work in 16 places for 10 s.
    assert finding["idle_workers"].share == 0.75


def test_a_frozen_trial_that_holds_the_step_up_blocks_it() -> None:
    events: list[AnyEvent] = [START, *step(1, GOOD, finish=False)]
    events += [
        trial_queued("held", label="copy-01/9", step=1, group="g1"),
        TrialPhaseChanged(trial="held", phase=TrialPhase.ACTING),
        TrialPaused(trial="held", frozen=True),
    ]
    held = found(events)["held_trials"]
    assert held.severity == "blocks"
    assert held.trials == ("held",)
    assert held.advice == "resume it"
    assert "held_trials" not in found([*events, TrialResumed(trial="held")])


def test_all_failing_comes_first() -> None:
    events = [START, *step(1, [(Outcome.CONTEXT_OVERFLOW, 0.0)] * 8)]
    first, second, *_ = diagnose(outlook(events))
    assert (first.rule, first.severity) == ("all_failing", "blocks")
    assert second.rule == "context_overflow"
    assert second.share == 1.0


def test_outages_and_tasks_that_never_start() -> None:
    events: list[AnyEvent] = [START, *step(1, GOOD)]
    events.append(OutageBegan(what="policy", text="down", remedy="wait"))
    events.append(OutageEnded(what="policy", seconds=20.0, text="back"))
    long = f"the build failed: {'layer after layer ' * 20}: no space left on device"
    events.append(TasksSetAside(tasks={"copy-01": long}, by="preflight"))
    findings = found(events)
    why = findings["unusable_tasks"].why
    assert why.startswith("copy-01: the build failed") and why.endswith("no space left on device")
    assert findings["policy_outages"].text.startswith("1 outages, 20s")
    assert findings["unusable_tasks"].share == 1.0
    assert "tasks check" in findings["unusable_tasks"].advice
    events[-1] = TasksSetAside(tasks={"copy-01": "the verifier gave no verdict"}, by="trial")
    assert "tasks try copy-01 " in found(events)["unusable_tasks"].advice


def test_the_diagnosis_is_made_anew_once_a_second_and_for_another_run() -> None:
    diagnosis, look = Diagnosis(), outlook([START, *step(1, [(Outcome.PARSE_ERROR, 0.0)] * 8)])
    first = diagnosis.at(look)
    assert first
    assert diagnosis.at(Outlook(look.state, look.now + 0.5)) is first
    assert diagnosis.at(Outlook(look.state, look.now + 1.5)) == first
    assert diagnosis.at(outlook([START])) == ()


NUMBERS = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.floats(-2, 100))
METRICS = st.dictionaries(
    st.sampled_from(
        [
            *("optim/kl_sample_train_v2", "optim/neg_logprob", "optim/kl_policy_base"),
            *("async/staleness_max", "env/all/by_group/frac_constant"),
            *("env/all/by_group/frac_all_bad", "env/all/total_episodes", "env/all/total_turns"),
            *("env/all/frac_truncated_turns", "sampling/asked_again", "time/sampling"),
            *("time/trials/queue", "time/trials/commands", "env/all/outcome/parse_error"),
        ]
    ),
    NUMBERS,
)
SETTINGS = st.dictionaries(
    st.sampled_from(
        [
            *("n_parallel_envs", "group_size", "batch_size", "max_turns", "context_limit"),
            *("step_deadline_sec", "max_steps_off_policy", "learning_rate", "importance_cap"),
        ]
    ),
    st.one_of(st.none(), st.integers(0, 64), st.floats(0, 10), st.booleans(), st.text(max_size=3)),
)
ENDS = st.lists(
    st.tuples(st.sampled_from(list(Outcome)), st.one_of(st.none(), st.floats(-1, 2))), max_size=10
)


@given(SETTINGS, st.lists(st.tuples(ENDS, METRICS), max_size=5), st.randoms(), st.booleans())
def test_whatever_a_journal_holds_ranks_are_the_same_and_shares_are_shares(
    settings: dict[str, object],
    steps: list[tuple[list[tuple[Outcome, float | None]], dict[str, float]]],
    rng: Random,
    over: bool,
) -> None:
    events: list[AnyEvent] = [run_started(settings=settings)]
    for number, (ends, metrics) in enumerate(steps, 1):
        events += step(number, ends, metrics, finish=number != len(steps) or over)
    events.append(
        GroupScored(
            step=1,
            group="g1",
            task="copy-01",
            disposition="constant",
            baseline=None,
            trials={"1-0": TrialScore(reward=None, advantage=None, tokens=0)},
        )
    )
    events.append(TrialPaused(trial="1-0"))
    rng.shuffle(events)
    if over:
        events.append(RunFinished(status="failed", reason="r"))
    findings = diagnose(outlook(events))
    assert findings == diagnose(outlook(events))
    assert list(findings) == sorted(findings, key=rank)
    for each in findings:
        assert 0 <= each.share <= 1
        assert all((each.text, each.limit, each.why, each.advice, each.line))
        assert each.remedy is None or each.remedy.text.startswith(f"{each.remedy.setting}=")
