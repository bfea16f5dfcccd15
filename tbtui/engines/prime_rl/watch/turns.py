"""The turns of a rollout: each model call with its tokens, from the graph of its messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tbtui.engines.prime_rl.watch.records import Call, Message, Node
from tbtui.engines.prime_rl.watch.token_text import Pieces
from tbtui.journal.samples import SampleRecord


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
    """Its prompt goes on from an earlier completion; else its history was written anew."""
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    """Empty where the server told no ids."""
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
        """As the journal keeps it. `turn`: the number that the trial gave the call."""
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
        """None where the server told none, as of a rollout that is an evaluation's."""
        known = self.known_logprobs
        return float(known.mean()) if known.size else None

    @property
    def min_logprob(self) -> float | None:
        known = self.known_logprobs
        return float(known.min()) if known.size else None

    @property
    def known_logprobs(self) -> npt.NDArray[np.float32]:
        return self.logprobs[np.isfinite(self.logprobs)]


def turns_of(nodes: Sequence[Node], calls: Sequence[Call], after: int = 0) -> Iterator[Turn]:
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
            yield _turn(number, _path(nodes, index), by_node.get(index, Call()))


def _turn(number: int, path: Sequence[Node], call: Call) -> Turn:
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


def _text(message: Message) -> str:
    if isinstance(message.content, list):
        text = "".join(str(part.get("text", "")) for part in message.content)
    else:
        text = message.content or ""
    calls = [f"{call.name}({call.arguments})" for call in message.tool_calls or ()]
    return "\n".join([text, *calls]) if text else "\n".join(calls)
