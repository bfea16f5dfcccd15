"""The turns of a rollout: each model call with its tokens, and what the tokens read as."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tbtui.engines.prime_rl.watch.formats import Node, TraceCall, TraceMessage
from tbtui.journal.samples import SampleRecord, ids_as_text


@dataclass(frozen=True, slots=True)
class Turn:
    """One completion."""

    number: int
    """From 1, in the order of the calls."""
    at: float
    """When it was there; seconds since the epoch."""
    text: str
    thinking: str
    observed: str
    """What is new in its prompt, as text."""
    goes_on: bool
    """Its prompt extends an earlier completion; else its history was rewritten."""
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    """Empty where the server gave no ids."""
    logprobs: npt.NDArray[np.float32]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None
    stop_reason: str
    temperature: float
    seconds: float

    def sample(
        self, trial: str, turn: int, weights_version: int, purpose: str, pieces: Pieces
    ) -> SampleRecord:
        """The journal's record of it. `turn`: the number that the trial gave the call."""
        return SampleRecord(
            trial=trial,
            turn=turn,
            prompt_ids=self.prompt_ids,
            completion_ids=self.completion_ids,
            logprobs=self.logprobs,
            pieces=tuple(pieces(self.completion_ids)),
            prompt_text=self.observed,
            stop_reason=self.stop_reason,
            weights_version=weights_version,
            temperature=self.temperature,
            seconds=self.seconds,
            summary=purpose != "turn",
        )

    @property
    def mean_logprob(self) -> float | None:
        """None where the server gave none, as for a rollout of an evaluation."""
        known = self.known_logprobs
        return float(known.mean()) if known.size else None

    @property
    def min_logprob(self) -> float | None:
        known = self.known_logprobs
        return float(known.min()) if known.size else None

    @property
    def known_logprobs(self) -> npt.NDArray[np.float32]:
        return self.logprobs[np.isfinite(self.logprobs)]


def turns_of(nodes: Sequence[Node], calls: Sequence[TraceCall], after: int = 0) -> Iterator[Turn]:
    """The turns that follow the first `after` ones.

    A node holds the tokens that its message adds; those along the path from the root are the
    prompt and the completion that the model saw, exactly.
    """
    by_node = {call.node: call for call in calls if call.node is not None}
    number = 0
    for index, node in enumerate(nodes):
        if not node.sampled:
            continue
        number += 1
        if number > after:
            yield _turn(number, _path(nodes, index), by_node.get(index, TraceCall()))


def _turn(number: int, path: Sequence[Node], call: TraceCall) -> Turn:
    node = path[-1]
    before = [token for each in path[:-1] for token in each.token_ids]
    # The generation prompt stands in front of what was sampled.
    scaffold = node.mask.index(True) if True in node.mask else len(node.token_ids)
    sampled = zip(node.token_ids, node.mask, strict=False)
    completion = tuple(token for token, drawn in sampled if drawn)
    logprobs = np.full(len(completion), np.nan, np.float32)
    known = [np.nan if each is None else each for each in node.logprobs[: len(completion)]]
    logprobs[: len(known)] = known
    since = next((i for i in range(len(path) - 2, -1, -1) if path[i].sampled), None)
    fresh = path[0 if since is None else since + 1 : -1]
    usage = call.usage
    prompt = (*before, *node.token_ids[:scaffold])
    sampling = call.sampling
    return Turn(
        number=number,
        at=node.timestamp,
        text=_text(node.message),
        thinking=node.message.reasoning_content or "",
        observed="\n".join(text for each in fresh if (text := _text(each.message))),
        goes_on=since is not None,
        prompt_ids=prompt if completion else (),
        completion_ids=completion,
        logprobs=logprobs,
        prompt_tokens=len(prompt)
        if completion or usage is None
        else usage.prompt_tokens + (usage.cached_input_tokens or 0),
        completion_tokens=len(completion)
        if completion or usage is None
        else usage.completion_tokens,
        cached_tokens=None if usage is None else usage.cached_input_tokens,
        stop_reason="length" if call.finish_reason == "length" else "stop",
        temperature=1.0
        if sampling is None or sampling.temperature is None
        else sampling.temperature,
        seconds=max(0.0, call.time.end - call.time.start),
    )


def _path(nodes: Sequence[Node], leaf: int) -> list[Node]:
    """From the root to `leaf`. A parent always stands in front of its children."""
    path = [nodes[leaf]]
    index, parent = leaf, nodes[leaf].parent
    while parent is not None and 0 <= parent < index:
        path.append(nodes[parent])
        index, parent = parent, nodes[parent].parent
    path.reverse()
    return path


def _text(message: TraceMessage) -> str:
    if isinstance(message.content, list):
        text = "".join(str(part.get("text", "")) for part in message.content)
    else:
        text = message.content or ""
    calls = [f"{call.name}({call.arguments})" for call in message.tool_calls or ()]
    return "\n".join([text, *calls]) if text else "\n".join(calls)


Pieces = Callable[[Sequence[int]], Sequence[str]]
"""Token ids to the text of each."""

_FILE = "tokenizer.json"


class NoTokenizerError(Exception):
    """The tokenizer is not on this machine; the message says in one line what would help."""


class TokenText:
    """The text of token ids, from a tokenizer read on its own thread: that can take seconds."""

    def __init__(self, config: dict[str, Any]) -> None:
        """`config`: Prime-RL's, resolved."""
        thread = ThreadPoolExecutor(1, "tokenizer")
        self._reading = thread.submit(_of_run, config)
        thread.shutdown(wait=False)
        self._said = False

    def pieces(self, ids: Sequence[int]) -> Sequence[str]:
        """The text of each token; waits for the vocabulary."""
        return ids_as_text(ids) if self._reading.exception() else self._reading.result()(ids)

    def problem(self) -> str:
        """Why tokens are shown as ids; empty: not known yet, not so, or said before."""
        if self._said or not self._reading.done():
            return ""
        self._said = True
        return str(self._reading.exception() or "")


def _of_run(config: dict[str, Any]) -> Pieces:
    if name := tokenizer_name(config):
        return token_text(name)
    raise NoTokenizerError("the run's configuration names no model")


def tokenizer_name(config: dict[str, Any]) -> str:
    """The directory or Hugging Face name of the tokenizer in Prime-RL's resolved configuration;
    empty: it has none."""
    orchestrator = config.get("orchestrator")
    for table in (config, orchestrator if isinstance(orchestrator, dict) else {}):
        for part in ("tokenizer", "model"):
            named = table.get(part)
            if isinstance(named, dict) and isinstance(name := named.get("name"), str) and name:
                return name
    return ""


def token_text(name: str) -> Pieces:
    """Load a tokenizer that is on this machine; nothing is fetched.

    Raises:
        NoTokenizerError: it isn't there, or can't be read.
    """
    from tokenizers import Tokenizer

    from tbtui.policies.chat.vocabulary import Vocabulary

    path = _find(name)
    try:
        vocabulary = Vocabulary(Tokenizer.from_file(str(path)))
    # The library raises nothing narrower for a file that it doesn't understand.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise NoTokenizerError(f"{path}: can't be read as a tokenizer ({reason})") from error

    def pieces(ids: Sequence[int]) -> Sequence[str]:
        known = all(0 <= id < vocabulary.size for id in ids)
        return vocabulary.pieces(ids) if known else ids_as_text(ids)

    return pieces


def _find(name: str) -> Path:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    directory = Path(name).expanduser()
    if directory.is_dir():
        if not (directory / _FILE).is_file():
            raise NoTokenizerError(f"{directory} has no {_FILE}; put the model's there")
        return directory / _FILE
    try:
        cached = try_to_load_from_cache(name, _FILE)
    except HFValidationError as error:
        raise NoTokenizerError(f"{name}: there is no such directory on this machine") from error
    if not isinstance(cached, str):
        raise NoTokenizerError(f"{name} is not in this machine's cache; hf download {name} {_FILE}")
    return Path(cached)
