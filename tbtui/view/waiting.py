"""What a run waits for, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tbtui.findings import Finding, Rule
from tbtui.journal.commands import RUN
from tbtui.outcomes import Outcome, advice
from tbtui.view.current import active_seconds, awaited
from tbtui.view.server import PolicyLostView
from tbtui.view.state import RunState, TrialView
from tbtui.view.times import Outlook, remaining_sec, time_left
from tbtui.vocabulary import Purpose, RunPhase, TrialPhase

_DOING = {
    TrialPhase.SETUP: "setting up",
    TrialPhase.MODEL: "waiting for the model",
    TrialPhase.ACTING: "acting",
    TrialPhase.VERIFYING: "verifying",
    TrialPhase.TEARDOWN: "tearing down",
    TrialPhase.QUEUED: "queued",
    TrialPhase.FINISHED: "finished",
    TrialPhase.PAUSED: "paused",
}


RUN_PAUSED = "the run to be resumed"
"""What a paused run waits for once none of its trials goes on."""


def verb_words(verb: str) -> str:
    """A command's verb as people read it."""
    return verb.replace("_", " ")


def unrewarded_words(state: RunState) -> str:
    """What stands in the place of training's rewards while there are none."""
    if state.settings.get("max_steps") == 0 and not state.settings.get("n_epochs"):
        return "none: this run trains nothing"
    return "after the first training trials"


def duration(seconds: float) -> str:
    """Seconds as `4s`, `3m12s`, `2h05m`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def number_range(steps: Sequence[int]) -> str:
    """`step 4`, `steps 4 to 9`."""
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {min(steps)} to {max(steps)}"


def step_of(step: int, most: int) -> str:
    """`step 3 of 10`; `step 3` where their number isn't known."""
    return f"step {step} of {most}" if most else f"step {step}"


def stage(state: RunState) -> str:
    """`starting`, `held-out tasks after step 3`, `step 4 of 10`: the step under way counts from 1,
    `state.step` says how many are done."""
    if state.phase is RunPhase.STARTING:
        return "starting"
    if state.phase is RunPhase.EVALUATING and state.probe is not None:
        rounds = 0 if state.probed is None else state.probed.rounds
        return f"probe, round {min(rounds + 1, state.probe.trials)} of {state.probe.trials}"
    if state.phase is RunPhase.EVALUATING:
        forks = state.settings.get("fork_from")
        return "forks" if forks else f"held-out tasks after step {state.step}"
    under_way = state.open_steps() or list(state.steps)[-1:]
    return step_of(under_way[0].step if under_way else 0, state.max_steps)


def doing(trial: TrialView) -> str:
    """What one trial is doing: `turn 5, acting`."""
    if trial.outcome is not None:
        return str(trial.outcome).replace("_", " ")
    if trial.hold.paused:
        return "taken over" if trial.hold.typist else trial.hold.state
    if trial.armed:
        return "pauses at its first turn"
    word = _DOING[trial.phase]
    if trial.phase is TrialPhase.MODEL and trial.answered:
        word = "about to act"
    elif trial.phase is TrialPhase.MODEL and trial.drawn:
        word = f"the model writes: {trial.drawn:,} token{'s' * (trial.drawn != 1)}"
    return (
        f"turn {trial.turn}, {word}"
        if trial.turn and trial.phase is not TrialPhase.QUEUED
        else word
    )


def waiting_for(outlook: Outlook) -> str:
    """One phrase for the status line: who or what holds the run up at this moment."""
    state, now = outlook.state, outlook.now
    if state.status is not None:
        return state.reason
    if state.policy_lost is not None:
        return f"the lost policy; {new_policy(state.policy_lost, now)}"
    server = state.policy_now.server if state.policy_now is not None else None
    if server is not None and server.held_up and server.in_flight and not state.paused:
        return f"the server, {server.words} ({duration(now - server.since)})"
    # Before its first event a run is in no phase yet.
    since = duration(now - (state.phase_since or now))
    match state.phase:
        case RunPhase.STARTING:
            return f"{state.phase_detail or 'the first trials'} ({since})"
        case RunPhase.SAMPLING | RunPhase.EVALUATING:
            return _waiting_for_trials(outlook)
        case RunPhase.REVIEWING:
            return f"a reviewer ({since})"
        case RunPhase.TRAINING:
            return f"the optimiser step ({since})"
        case RunPhase.SAVING:
            return "the checkpoint to be written"
        case RunPhase.STOPPING:
            return "the trials to be cleaned up"
        case RunPhase.FINISHED:
            return state.reason


def new_policy(lost: PolicyLostView, now: float) -> str:
    """`a new one in 12s`, `a new one (since 3s)`."""
    left = lost.retry_at - now
    return f"a new one in {duration(left)}" if left >= 1 else f"a new one (since {duration(-left)})"


def retry_wait(trial: TrialView, now: float) -> str:
    """`retry in 4 s`, while a successor is held back; empty otherwise."""
    if trial.retry_at is None or (trial.started_at is not None and trial.live):
        return ""
    left = trial.retry_at - now
    return f"retry in {max(1, round(left))} s" if left > 0 else ""


def held_by_people(state: RunState) -> list[TrialView]:
    """The trials that somebody has paused, froze or types in, where the run can't go on without
    them: of the batch that it goes on with next nothing else runs, or can be started."""
    if state.paused or state.phase not in (RunPhase.SAMPLING, RunPhase.EVALUATING):
        return []
    live, first = state.live_trials(), awaited(state)
    batch = [trial for trial in live if (trial.step, trial.purpose) == first] or live
    paused = [trial for trial in batch if trial.hold.paused]
    others = [trial for trial in batch if not trial.hold.paused]
    if any(trial.phase is not TrialPhase.QUEUED for trial in others):
        return []
    # A paused trial keeps its place among those that may run at once.
    places, taken = state.settings.get("n_parallel_envs"), len(live) - len(_queued(live))
    return [] if others and isinstance(places, int) and taken < places else paused


def _queued(trials: Sequence[TrialView]) -> list[TrialView]:
    return [trial for trial in trials if trial.phase is TrialPhase.QUEUED]


def _waiting_for_trials(outlook: Outlook) -> str:
    state, now = outlook.state, outlook.now
    if held := held_by_people(state):
        if held[0].hold.typist:
            return f"{held[0].hold.typist} to give {held[0].label} back"
        return f"{held[0].label}, {held[0].hold.state}"
    running = state.running_trials()
    paused = [trial for trial in running if trial.hold.paused]
    if len(paused) == len(running):
        if state.paused:
            return RUN_PAUSED
        retries = [trial for trial in state.trials.values() if retry_wait(trial, now)]
        if retries:
            return f"{retries[0].label} ({retry_wait(retries[0], now)})"
        return "a trial to start"
    if state.paused:
        left = len(running) - len(paused)
        return f"{left} trial{'s' if left > 1 else ''} to reach the end of a turn"
    last = outlook.holding_up[0]
    remaining = remaining_sec(last, state, now)
    how_long = (
        duration(active_seconds(last, now)) if remaining is None else f"{time_left(remaining)} left"
    )
    return f"{last.label} ({doing(last)}, {how_long})"


_FEW = 8
"""Trials of a batch from which on it says something that none of them came to an end of its own."""
_FEWEST = 4
"""Trials below which a batch in which all failed says nothing."""
_OWN_ENDS = frozenset({Outcome.SOLVED, Outcome.FAILED})


def needs(outlook: Outlook) -> tuple[Finding, ...]:
    """All that the run needs a person for, to act or to know, the most important first; none while
    it goes on as it should."""
    return tuple(_needs(outlook))


def need_words(need: Finding, outlook: Outlook) -> str:
    """Its text, with how long a trial that holds the run up has been paused."""
    held = outlook.state.trials.get(need.trials[0]) if need.rule is Rule.HELD_TRIALS else None
    if held is None or held.hold.typist:
        return need.text
    return f"{need.text} {duration(outlook.now - held.phase_since)}"


def news_of(need: Finding) -> str:
    """What tells needs apart: that the next step's trials all fail, too, is no news."""
    return need.rule if need.rule is Rule.ALL_FAILING else need.text


def _needs(outlook: Outlook) -> Iterator[Finding]:
    state = outlook.state
    if state.status is not None:
        failed = state.status == "failed"
        over = Rule.RUN_FAILED if failed else Rule.RUN_OVER
        yield _need(over, f"the run {'has failed' if failed else 'is over'}")
        return
    if state.policy_lost is not None:
        yield _need(Rule.WAITS_POLICY, "the run has lost its policy")
    if state.paused and state.paused_for:
        what = state.paused_for.partition("; ")[0]
        yield _need(Rule.WAITS_PAUSED, f"the run has paused itself: {what}")
    elif state.paused:
        asked = _asked_to_pause(state)
        words = "the run is paused" if asked else "the run has paused itself"
        yield _need(Rule.WAITS_PAUSED, words, calls=not asked)
    if state.reviews:
        yield _need(Rule.WAITS_REVIEW, f"step {next(iter(state.reviews))} waits for a review")
    if held := held_by_people(state):
        yield _held(held)
    if failing := _all_failing(state):
        yield failing


def _need(
    rule: Rule, text: str, trials: Sequence[TrialView] = (), *, calls: bool = True
) -> Finding:
    ids = tuple(trial.trial for trial in trials)
    return Finding(rule, text, "blocks", trials=ids, calls=calls)


def _asked_to_pause(state: RunState) -> bool:
    """Whether a person paused the run, who then knows that it waits."""
    asked = [each.verb for each in state.commands if each.target == RUN]
    return [verb for verb in asked if verb in ("pause", "resume")][-1:] == ["pause"]


def _held(trials: list[TrialView]) -> Finding:
    first, more = trials[0], len(trials) - 1
    if typist := first.hold.typist:
        text = f"{typist} types in {first.label}"
    else:
        others = f" and {more} more" if more else ""
        state = "frozen" if first.hold.frozen else "paused"
        text = f"{first.label}{others} {'hold' if more else 'holds'} the step up, {state}"
    return _need(Rule.HELD_TRIALS, text, trials, calls=not typist)


def _all_failing(state: RunState) -> Finding | None:
    """`all 24 trials of step 3 failed: context overflow, raise context_limit`, of the newest batch
    that says as much.

    A batch of which a few have ended says so where none of those had a verdict of its own; one
    whose trials were all verified, and all without success, once it is through.
    """
    batches: dict[tuple[int, Purpose], list[TrialView]] = {}
    for trial in state.trials.values():
        if trial.outcome is not Outcome.CANCELLED:
            batches.setdefault((trial.step, trial.purpose), []).append(trial)
    for (step, purpose), trials in reversed(batches.items()):
        ended = [trial for trial in trials if not trial.live]
        if any(trial.reward for trial in ended):
            return None
        outcomes = Counter(trial.outcome for trial in ended if trial.outcome is not None)
        through = len(ended) == len(trials) >= _FEWEST
        if through or (len(ended) >= _FEW and not _OWN_ENDS & outcomes.keys()):
            held_out = f"held-out trials after step {step}"
            of = f"trials of step {step}"
            if purpose != "train":
                of = {"eval": held_out, "probe": "trials of the probe"}.get(purpose, "forks")
            so_far = "" if through else " so far"
            ((most, count), *others) = outcomes.most_common()
            share = f"{count} " if others else ""
            why = "" if most is Outcome.FAILED else f": {share}{most.replace('_', ' ')}"
            if todo := advice(most):
                why += f", {todo}"
            return _need(Rule.ALL_FAILING, f"all {len(ended)} {of} failed{so_far}{why}", ended)
        if through:
            return None
    return None
