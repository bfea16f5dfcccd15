"""What happens in a trial, for whoever watches: one file of JSON lines for each trial.

`events/TRIAL.jsonl` has one line an event, `{"time": SECONDS, "event": {...}}`, where `event` is
one of the journal's (`tbtui.journal.events`) with its `kind`, from `trial_queued` to
`trial_finished`, which is always the last. Commands on the trial and what came of them are there
too (`command_issued`, `command_done`). The terminal is beside it, in
`trials/TRIAL/recording.cast`.

One event differs: the token ids and log-probabilities of a completion stay in verifiers, so that
in `turn_sampled` the fields `sample`, `mean_logprob`, `min_logprob` and `weights_version` are
null. Prime-RL's traces have them, under the id in `TRIAL__ID`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tbtui.journal.events import AnyEvent
from tbtui.rollout.messages import Completion, SampleWanted

FOLDER = "events"


class TrialLog:
    """Appends one trial's events. Every line is with the system when `append` returns.

    Every method raises `OSError` when the disk refuses.
    """

    def __init__(self, directory: Path, trial: str, clock: Callable[[], float] = time.time) -> None:
        folder = directory / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._file = (folder / f"{trial}.jsonl").open("ab", buffering=0)

    def append(self, event: AnyEvent) -> None:
        self._write(event.model_dump(mode="json"))

    def sampled(self, wanted: SampleWanted, completion: Completion, seconds: float) -> None:
        """As `TurnSampled`, without what only the trainer knows."""
        self._write(
            {
                "kind": "turn_sampled",
                "trial": wanted.trial,
                "turn": wanted.turn,
                "purpose": wanted.purpose,
                "sample": None,
                "text": completion.text,
                "thinking": completion.thinking,
                "prompt_tokens": completion.prompt_tokens,
                "completion_tokens": completion.completion_tokens,
                "mean_logprob": None,
                "min_logprob": None,
                "stop_reason": "length" if completion.truncated else "stop",
                "weights_version": None,
                "cached_tokens": None,
                "seconds": seconds,
            }
        )

    def close(self) -> None:
        self._file.close()

    def _write(self, event: dict[str, Any]) -> None:
        # In ASCII: no reader can take a character of the text for the end of the line.
        line = json.dumps({"time": self._clock(), "event": event})
        self._file.write(line.encode() + b"\n")
