"""Trials that run in tbtui's plugin: read live from its logs, completed by Prime-RL's traces.

The plugin logs events as they happen. The trace of the same rollout comes when it is over and adds
what only the trainer knows (`TrialTraced`): its group, its step and its tokens. A trial that never
gets a trace is complete without one.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator

import msgspec

from tbtui.engines.prime_rl.control import CommandJournal
from tbtui.engines.prime_rl.watch.formats import (
    Episode,
    FinishedTrial,
    Trace,
    end_of,
    identity_of,
)
from tbtui.engines.prime_rl.watch.plugin_logs import Logged, PluginLogs, PluginTrial, pairs
from tbtui.engines.prime_rl.watch.recorder import Savepoint, TraceRecorder
from tbtui.engines.prime_rl.watch.steps import Steps
from tbtui.journal.events import (
    CallTraced,
    CommandDone,
    CommandIssued,
    Outcome,
    PhaseSeconds,
    Purpose,
    TrialEvent,
    TrialFinished,
    TrialPhase,
    TrialQueued,
    TrialTraced,
)
from tbtui.journal.reader import JournalReader

_UNTRACED = 2_000
"""Finished trials whose trace may still come."""
_ROUND_LINES = 500
_SERVERS_EVERY_SEC = 5.0
_ID_CHARS = 12
"""How much of a trace's id a trial's name ends with."""


class PluginTrials:
    """Journals what the plugin logs, each line once."""

    def __init__(
        self,
        recorder: TraceRecorder,
        commands: CommandJournal,
        logs: PluginLogs | None,
        steps: Steps,
        savepoint: Savepoint,
    ) -> None:
        """`logs` None: it is not known where the plugin's logs are."""
        self._recorder = recorder
        self._commands = commands
        self._logs = logs
        self._steps = steps
        self._savepoint = savepoint
        self._live: dict[str, PluginTrial] = {}
        self._untraced: OrderedDict[str, PluginTrial] = OrderedDict()
        """Finished ones."""
        self._names: dict[str, str] = {}
        """By the beginning of the trace's id."""
        self._attempts: Counter[str] = Counter()
        self._looked_at = 0.0
        self._warned_bad = False
        self.behind = False
        """There was more than one round takes."""
        self.news = 0
        """Lines journalled so far."""

    @property
    def live(self) -> int:
        return len(self._live)

    @property
    def any(self) -> bool:
        """Whether the plugin has run a trial."""
        return bool(self._names)

    def restore(self, reader: JournalReader) -> Collection[str]:
        """Restore what an earlier watcher journalled. Returns the plugin's trials."""
        if self._logs is None:
            return ()
        logged = set(self._logs.new())
        for name in logged:
            self._names[_key_of(name)] = name
        kinds = ("trial_queued", "trial_finished", "trial_traced")
        over = set[str]()
        for entry in reader.each(kinds):
            match event := entry.event:
                case TrialQueued(trial=name) if name in logged:
                    self._attempts[event.task] += 1
                    self._live[name] = PluginTrial(event.task, event.purpose, event.step)
                case TrialFinished(trial=name) if name in self._live:
                    over.add(name)
                    self._untraced[name] = self._live.pop(name)
                    self._untraced[name].finished = event
                case TrialTraced(trial=name):
                    self._untraced.pop(name, None)
                case _:
                    pass
        self._bound()
        for name, trial in (*self._live.items(), *self._untraced.items()):
            entries = reader.read_trial(name)
            trial.written = len(entries)
            for entry in entries:
                trial.follow(entry.event, entry.time)
        for name in logged - over - self._live.keys():
            self._live[name] = PluginTrial()
        return logged

    def read(self, now: float) -> None:
        """Journal what is new in the logs."""
        if self._logs is None:
            return
        self._find_new()
        before, self.behind = self.news, False
        for name in list(self._live):
            if self.news - before > _ROUND_LINES:
                self.behind = True
                return
            self._catch_up(name)
        if now - self._looked_at >= _SERVERS_EVERY_SEC:
            self._looked_at = now
            self._find_lost()

    def find(self, trace: str) -> str | None:
        """The plugin's trial with this trace, if it is one."""
        if trace[:_ID_CHARS] not in self._names:
            self._find_new()
        return self._names.get(trace[:_ID_CHARS])

    def traced(self, name: str, episode: Episode, trace: Trace, step: int) -> FinishedTrial | None:
        """Complete a trial with its trace, for the batch `step`; None: it came before."""
        self._catch_up(name)
        who = identity_of(episode, trace)
        end = end_of(trace)
        if name in self._live:
            # Its log broke off; a trace is whole.
            self._finish(name, end.outcome, end.reason, end.verdict, end.reward)
        trial = self._untraced.pop(name, None)
        if trial is None or trial.finished is None:
            return None
        with self._recorder.together():
            self._recorder.record(
                TrialTraced(
                    trial=name,
                    group=who.group,
                    step=step,
                    weights_version=who.policy_version,
                    calls=tuple(self._calls(name, trial, trace, who.policy_version)),
                )
            )
        self._recorder.forget(name)
        if trial.finished.reward is not None and end.reward is None:
            self._recorder.warn(f"{name}: Prime-RL leaves it out: {end.reason}")
        tokens = sum(sum(node.mask) for node in trace.nodes)
        return FinishedTrial.of(who, step, trial.finished.outcome, end.reward, tokens)

    def end_all(self, reason: str) -> None:
        """End the trials that still seem to run: the run is over."""
        for name in list(self._live):
            self._catch_up(name)
        for name in list(self._live):
            self._finish(name, Outcome.CANCELLED, reason)

    def waiting(self, now: float) -> str:
        """What the live trials wait for: `2 waiting for the model (for up to 30 s)`."""
        states: dict[str, list[float]] = {}
        for trial in self._live.values():
            states.setdefault(trial.doing, []).append(max(0.0, now - trial.since))
        return ", ".join(
            f"{len(times)} {word} (for up to {max(times):.0f} s)"
            for word, times in sorted(states.items())
        )

    @property
    def all_held(self) -> bool:
        """Whether every trial that has begun is paused, and there is one."""
        begun = [t for t in self._live.values() if t.phase is not TrialPhase.QUEUED]
        return bool(begun) and all(trial.paused for trial in begun)

    def _find_new(self) -> None:
        for name in self._logs.new() if self._logs is not None else ():
            self._names[_key_of(name)] = name
            self._live[name] = PluginTrial()

    def _catch_up(self, name: str) -> None:
        if self._logs is None or name not in self._live:
            return
        trial = self._live[name]
        for logged in self._logs.read(name):
            trial.server = logged.server or trial.server
            self._line(name, trial, logged)
        if self._logs.bad_lines and not self._warned_bad:
            self._warned_bad = True
            self._recorder.warn(f"a line of {name}'s log is no event of tbtui's; it is left out")
        if trial.finished is not None:
            self._end(name, trial)

    def _line(self, name: str, trial: PluginTrial, logged: Logged) -> None:
        event = logged.event
        match event:
            case CommandIssued():
                self._commands.taken_up(event, logged.at)
            case CommandDone():
                self._commands.done(event, logged.at)
            case TrialEvent() if event.trial == name and trial.finished is None:
                if trial.written:
                    trial.written -= 1
                    return
                self.news += 1
                if isinstance(event, TrialQueued):
                    event = self._queued(event, logged.at)
                trial.follow(event, logged.at)
                self._recorder.record(event, logged.at)
            case _:
                pass

    def _batch(self, purpose: Purpose, at: float) -> int:
        """The step that a trial which begins now is counted to."""
        if purpose == "eval":
            return self._savepoint.pipeline.shipped + 1
        step = self._steps.collected + 1
        self._steps.start(step, at)
        return step

    def _queued(self, event: TrialQueued, at: float) -> TrialQueued:
        """The event with the step that it is counted to until its trace is there."""
        self._attempts[event.task] += 1
        return msgspec.structs.replace(
            event,
            label=f"{event.task}/{self._attempts[event.task]}",
            group="",
            step=self._batch(event.purpose, at),
        )

    def _find_lost(self) -> None:
        servers = {trial.server for trial in self._live.values() if trial.server is not None}
        ended = {server for server in servers if server.ended()}
        for name, trial in list(self._live.items()):
            if trial.server in ended:
                self._catch_up(name)  # what it wrote last
            if trial.server in ended and name in self._live:
                reason = f"its environment server (process {trial.server.pid}) ended"
                self._finish(name, Outcome.SANDBOX_LOST, reason)

    def _finish(
        self,
        name: str,
        outcome: Outcome,
        reason: str,
        verdict: float | None = None,
        reward: float | None = None,
    ) -> None:
        """End a trial whose log has no end."""
        trial = self._live[name]
        trial.finished = TrialFinished(
            trial=name,
            outcome=outcome,
            reason=reason,
            verdict=verdict,
            reward=reward,
            turns=max((call.turn for call in trial.calls), default=0),
            seconds=PhaseSeconds(),
        )
        if trial.task:
            self._recorder.record(trial.finished)
        self._commands.over(name, outcome)
        self._end(name, trial)

    def _end(self, name: str, trial: PluginTrial) -> None:
        del self._live[name]
        if self._logs is not None:
            self._logs.close(name)
        if trial.task:
            self._untraced[name] = trial
        self._bound()

    def _bound(self) -> None:
        while len(self._untraced) > _UNTRACED:
            self._untraced.popitem(last=False)

    def _calls(
        self, name: str, trial: PluginTrial, trace: Trace, version: int
    ) -> Iterator[CallTraced]:
        for call, turn in pairs(trial.calls, trace):
            if turn is None:
                text = f"its tokens don't fit its turn {call.turn}; they are left out"
                self._recorder.warn(f"{name}: {text}")
                return
            if turn.mean_logprob is None or turn.min_logprob is None:
                continue
            sample = turn.sample(name, call.turn, version, call.purpose, self._recorder.pieces)
            yield CallTraced(
                turn=call.turn,
                purpose=call.purpose,
                sample=self._recorder.sample(sample),
                prompt_tokens=turn.prompt_tokens,
                completion_tokens=turn.completion_tokens,
                mean_logprob=turn.mean_logprob,
                min_logprob=turn.min_logprob,
                cached_tokens=turn.cached_tokens,
            )


def _key_of(name: str) -> str:
    """The beginning of the trace's id, which a trial's name ends with."""
    return name.rpartition("__")[2]
