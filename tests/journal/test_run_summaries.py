"""Runs in one line, found by time, and searched: without reading them whole."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tbtui.findings import Rule
from tbtui.journal.events import (
    AgentCommand,
    AlarmRaised,
    AnyEvent,
    EvalFinished,
    Noted,
    Outcome,
    RunFinished,
    SettingsChanged,
    StepFinished,
    TrialPhase,
    TrialPhaseChanged,
    TurnObserved,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.search import Hit, search
from tbtui.journal.timeline import Timeline
from tbtui.journal.writer import JournalWriter
from tbtui.view.runs import RunList, summarise
from tests.events import (
    eval_finished,
    run_continued,
    run_started,
    trial_finished,
    trial_queued,
    turn_parsed,
    write_journal,
)

BEGUN = run_started(run="r", tasks=(), settings={"max_steps": 40, "engine": "grpo"})
CONTINUED = run_continued(settings={"max_steps": 60})


def trial_events(name: str, outcome: Outcome, said: str, saw: str) -> list[AnyEvent]:
    return [
        trial_queued(name),
        TrialPhaseChanged(trial=name, phase=TrialPhase.MODEL),
        turn_parsed(
            name,
            analysis=said,
            commands=(AgentCommand(keystrokes=f'echo "{said}"\n', duration_sec=1),),
        ),
        TurnObserved(trial=name, turn=1, observation=saw, seconds=1),
        trial_finished(name, None, outcome=outcome, reason="the manifest differs"),
    ]


def evaluation(step: int, pass_rate: float) -> EvalFinished:
    return eval_finished(step, pass_rate, scored=10)


STORY: list[AnyEvent] = [
    BEGUN,
    evaluation(0, 0.25),
    *trial_events("a", Outcome.SOLVED, "Grüße, 100% sure", "total 8\n\x1b[31mnotes.md\x1b[0m"),
    *trial_events("b", Outcome.FAILED, "a_b is there", "C:\\temp"),
    *trial_events("c", Outcome.SANDBOX_LOST, "nothing", "nothing"),
    StepFinished(
        step=1, weights_version=1, metrics={"env/all/reward/total": 0.5, "cost/total_usd": 1.5}
    ),
    AlarmRaised(alarm=Rule.NO_SIGNAL, step=1, text="all alike", numbers={}, action="warn"),
    evaluation(1, 0.75),
]


def write(path: Path, events: list[AnyEvent], start: float = 1000.0) -> RunDirectory:
    seconds = itertools.count(start)
    return write_journal(RunDirectory.create(path), events, clock=lambda: float(next(seconds)))


@pytest.fixture
def story(tmp_path: Path) -> RunDirectory:
    return write(tmp_path / "runs" / "story", STORY)


@pytest.fixture
def timeline(story: RunDirectory) -> Iterator[Timeline]:
    opened = Timeline(story)
    yield opened
    opened.close()


def test_a_summary_says_what_the_run_came_to(story: RunDirectory) -> None:
    summary = summarise(story)
    assert summary.standing == "killed"
    assert (summary.step, summary.max_steps, summary.rollouts) == (1, 40, 3)
    assert (summary.first_pass_rate, summary.last_pass_rate) == (0.25, 0.75)
    assert (summary.policy, summary.model_name, summary.engine) == ("local", "starter", "grpo")
    assert summary.seconds == len(STORY) - 1
    assert (summary.alarms, summary.alarm, summary.cost_usd) == (1, "all alike", 1.5)
    assert (summary.curve, summary.curve_of) == ((0.5,), "reward")


def test_a_run_stands_as_its_last_process_left_it(tmp_path: Path) -> None:
    failed = RunFinished(status="failed", reason="no space left")
    run = write(tmp_path / "failed", [*STORY, failed])
    assert (summarise(run).standing, summarise(run).reason) == ("failed", "no space left")
    with JournalWriter(run, continues=True) as writer:
        writer.append(CONTINUED)
        assert summarise(run).standing == "live"
    assert (summarise(run).standing, summarise(run).max_steps) == ("killed", 60)


def test_the_last_step_is_the_one_that_is_planned_now(tmp_path: Path) -> None:
    longer = SettingsChanged(settings={"max_steps": 60}, before={"max_steps": 40})
    assert summarise(write(tmp_path / "longer", [*STORY, longer])).max_steps == 60
    # Passes over its one task to train on, in batches of two.
    epochs = run_started(settings={"max_steps": None, "n_epochs": 10, "batch_size": 2})
    assert summarise(write(tmp_path / "epochs", [epochs])).max_steps == 5
    evaluation = run_started(settings={"max_steps": 0})
    assert summarise(write(tmp_path / "evaluation", [evaluation])).max_steps == 0
    unknown = run_started(settings={"max_steps": None})
    assert summarise(write(tmp_path / "unknown", [unknown])).max_steps is None


def test_what_is_no_journal_is_listed_as_such(tmp_path: Path) -> None:
    for name in ("junk", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "junk" / "run.db").write_text("junk " * 1000)
    (tmp_path / "empty" / "run.db").write_text("")
    write(tmp_path / "good", STORY)
    write(tmp_path / "later", STORY, start=5000.0)
    found = RunList((tmp_path, tmp_path)).read()
    assert [(each.directory.name, each.standing) for each in found[:2]] == [
        ("later", "killed"),
        ("good", "killed"),
    ]
    assert {each.standing for each in found[2:]} == {"unreadable"}
    reasons = {each.directory.name: each.reason for each in found[2:]}
    assert "run.db: can't be read (file is not a database)" in reasons["junk"]
    assert "run.db: journal format 0, this tbtui reads 2" in reasons["empty"]


def test_moments_are_found_both_ways(timeline: Timeline) -> None:
    assert timeline.bounds() == (1000.0, 1000.0 + len(STORY) - 1)
    broken, step = 1016.0, 1017.0
    found = timeline.milestone(1002.0, 1)
    assert found is not None
    assert (found.time, found.trial) == (broken, "c")
    found = timeline.milestone(broken, 1)
    assert found is not None
    assert (found.time, found.kind, found.text) == (step, "step_finished", "1")
    found = timeline.milestone(step, -1)
    assert found is not None
    assert found.time == broken
    failure = timeline.failure(1000.0, 1)
    assert failure is not None
    assert (failure.trial, failure.time) == ("b", 1011.0)
    assert timeline.failure(1011.0, 1) is None, "what broke has not failed"
    assert timeline.step_end(1) == step
    assert timeline.step_end(2) is None


def test_a_trial_is_found_by_its_name_and_gone_through_by_turns(timeline: Timeline) -> None:
    assert timeline.span("a") == (1003.0, 1006.0)
    assert timeline.span("nobody") is None
    turn = timeline.turn_end(1003.0, 1, "a")
    assert turn is not None
    assert (turn.time, turn.kind) == (1005.0, "turn_observed")
    assert timeline.find_trials("copy-01/b") == [("b", "copy-01/b", 1)]
    assert [each[0] for each in timeline.find_trials("copy-01")] == ["a", "b", "c"]
    assert timeline.find_trials("copy-02") == []


def found_in(run: RunDirectory, text: str) -> list[Hit]:
    return [hit for progress in search(run, text) for hit in progress.hits]


@pytest.mark.parametrize(
    ("text", "trial", "where"),
    [
        ("grüße", "a", "said"),
        ("100% s", "a", "said"),
        ("NOTES.md", "a", "saw"),
        ("a_b", "b", "said"),
        ('echo "a_b', "b", "typed"),
        ("C:\\temp", "b", "saw"),
    ],
)
def test_a_text_is_found_as_it_was_written(
    story: RunDirectory, text: str, trial: str, where: str
) -> None:
    hits = found_in(story, text)
    assert [(hit.trial, hit.where, hit.turn) for hit in hits] == [(trial, where, 1)]
    assert hits[0].found.lower() == text.lower()
    assert (hits[0].label, hits[0].step) == (f"copy-01/{trial}", 1)


def test_an_excerpt_has_no_colours(tmp_path: Path) -> None:
    saw = f"{'x' * 100}\x1b[01;34msrc\x1b[0m: not found \x1b[31mhere\x1b[0m{'y' * 100}"
    run = write(tmp_path / "r", [run_started(), *trial_events("a", Outcome.FAILED, "", saw)])
    (hit,) = found_in(run, "not found")
    assert hit.before == f"{'x' * 55}src: "
    assert hit.after == f" here{'y' * 55}"


def test_wildcards_and_names_of_fields_are_not_found(story: RunDirectory) -> None:
    assert not found_in(story, "a%b")
    assert not found_in(story, "observation")
    verdicts = found_in(story, "manifest")
    assert [(hit.trial, hit.turn, hit.where) for hit in verdicts] == [
        (name, None, "ended") for name in "abc"
    ]
    json.dumps([hit.before + hit.found + hit.after for hit in verdicts])


def test_what_tells_of_earlier_times_is_not_passed_over(tmp_path: Path) -> None:
    """A machine's clock was set back, or trials were journalled after they had ended."""
    run = RunDirectory.create(tmp_path / "r")
    times = iter([1.0, 100.0, 2.0, 3.0, 100.0, 4.0, 101.0, 50.0])
    with JournalWriter(run, clock=lambda: next(times)) as writer:
        for text in ("a1", "a2", "b1", "b2", "a3", "b3", "c1"):
            writer.append(Noted(level="info", text=text))
        reader, timeline = JournalReader(run), Timeline(run)
        assert [reader.seq_at(time) for time in (0, 1, 5, 99, 100, 101)] == [0, 1, 1, 1, 6, 7]
        assert timeline.bounds() == (1, 101)
        assert [timeline.replay_time(seq, 3.0) for seq in (4, 6)] == [100, 100]
        seen, now = [], 0.0
        while (moment := timeline.event(now, 1)) is not None:
            seen.append((moment.text, moment.time))
            now = moment.time
        assert seen == [("a1", 1), ("a2", 100), ("c1", 101)]
        # Told in the same moment: the last of them stands for all.
        before = timeline.event(101, -1)
        assert before is not None
        assert (before.text, before.time) == ("b3", 100)
        writer.append(StepFinished(step=1, weights_version=1, metrics={}))
        assert reader.seq_at(100) == 6
        assert reader.seq_at(101) == 8
        assert timeline.step_end(1) == 101
        times = iter([102.0])
        writer.append(Noted(level="info", text="d1"))
        assert reader.seq_at(101) == 8
        assert timeline.bounds() == (1, 102)
