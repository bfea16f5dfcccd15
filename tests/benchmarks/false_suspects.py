"""What of runs is suspected: `python tests/benchmarks/false_suspects.py RUN_DIRECTORY...`.

Of a run in which nothing was wrong every suspicion is a false alarm. Groups of evaluations are
looked at too, though no review ever asks about them.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from tbtui.algorithm.suspects import ExaminedTrial, suspects
from tbtui.journal.events import AnyEvent, Outcome, TrialFinished, TrialQueued, TurnParsed
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory


def events(reader: JournalReader) -> Iterator[AnyEvent]:
    seq = 0
    while entries := reader.read_kinds(["trial_queued", "turn_parsed", "trial_finished"], seq):
        seq = entries[-1].seq
        yield from (entry.event for entry in entries)


def groups(reader: JournalReader) -> list[list[ExaminedTrial]]:
    """By group; in evaluations by step and task."""
    group_of: dict[str, str] = {}
    commands: defaultdict[str, list[str]] = defaultdict(list)
    found: defaultdict[str, list[ExaminedTrial]] = defaultdict(list)
    for event in events(reader):
        match event:
            case TrialQueued(purpose="train"):
                group_of[event.trial] = event.group
            case TrialQueued():
                group_of[event.trial] = f"eval {event.step} {event.task}"
            case TurnParsed():
                commands[event.trial] += [command.keystrokes for command in event.commands]
            case TrialFinished():
                samples = reader.samples(event.trial)
                found[group_of[event.trial]].append(
                    ExaminedTrial(
                        trial=event.trial,
                        outcome_is_infrastructure=event.outcome.infrastructure,
                        human_touched=event.outcome is Outcome.HUMAN_TOUCHED,
                        reward=event.reward,
                        verdict=event.verdict,
                        turns=event.turns,
                        began_at=event.ended_at - event.seconds.total + event.seconds.queue,
                        ended_at=event.ended_at,
                        verifying_sec=event.seconds.verifying,
                        commands=tuple(commands[event.trial]),
                        verifier_output=event.verifier_output,
                        completions=tuple(tuple(map(int, s.completion_ids)) for s in samples),
                    )
                )
            case _:
                pass
    return list(found.values())


def report(run: RunDirectory) -> Iterator[str]:
    with contextlib.closing(JournalReader(run)) as reader:
        examined = groups(reader)
    trials = [trial for group in examined for trial in group]
    same = sum(
        count
        for group in examined
        for count in Counter(trial.completions for trial in group).values()
        if count > 1
    )
    found = [(trial, reasons) for group in examined for trial, reasons in suspects(group).items()]
    yield (
        f"{run.name}: {len(trials)} trials in {len(examined)} groups, {same} of them with a sibling"
        f" that said the same; {len(found)} suspected ({len(found) / max(1, len(trials)):.2%})"
    )
    for trial, reasons in found:
        yield f"  {trial}: " + "; ".join(f"{each.rule}: {each.text}" for each in reasons)


def main(directories: Sequence[str]) -> None:
    for directory in directories:
        for line in report(RunDirectory(Path(directory))):
            print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
