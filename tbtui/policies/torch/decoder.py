"""Continuous batching on the forward of a transformers model.

transformers 5.23 has `ContinuousBatchingManager` with a paged cache, which is not used: all
completions draw from torch's one random stream, so that a completion's seed can't be honoured and
a draw depends on what else is in the batch; log-probabilities are the logarithm of a softmax, which
is -inf where they are below -103; and one set of weights is all that requests under way can
have, so that a new version would have to wait for the last of them. Off CUDA its attention gathers
the pages for every token anyway. So rows here have a cache of slots (`slots.py`), a random stream
each, and a batch per version (`batch.py`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import torch

from tbtui.policies.base import PolicyError, Sample, StopReason
from tbtui.policies.torch.batch import Row, SamplingBatch
from tbtui.policies.torch.endings import Endings
from tbtui.policies.torch.sampling import SamplerSettings
from tbtui.policies.torch.slots import Prefix, longest_common
from tbtui.policies.torch.versions import Versions

_PREFIX_SHARE = 0.1
"""Share for prefixes of the memory that is free when the model is loaded."""
_PREFIX_BYTES = 4 << 30


class Decoder:
    """Draws completions, each with the version that is published as it joins. For one thread."""

    def __init__(
        self, versions: Versions, settings: SamplerSettings,
        answered: Callable[[int, Sample | PolicyError], None],
    ) -> None:  # fmt: skip
        """
        Args:
            answered: gets a completion, or why there is none, by its number.

        Raises:
            PolicyError: the model has layers that can't be computed in this way.
        """
        self._versions = versions
        self._answered = answered
        self._max_rows = settings.max_rows
        self._dtype = getattr(torch, settings.dtype)
        self._device = torch.device(settings.device)
        self._endings = Endings(settings)
        self._waiting: deque[Row] = deque()
        self._prefixes = Prefixes(_prefix_bytes(self._device))
        self._number = 0
        """Number of the published weights in `Versions`."""
        self._batches: list[SamplingBatch] = []
        """The last one's version is the published one; those before it are run down."""
        try:
            self._batches.append(self._batch(0))
        except ValueError as error:
            raise PolicyError(
                f"sampler=transformers can't sample from {settings.model}: {error}; use"
                " sampler=vllm"
            ) from error

    @property
    def running(self) -> int:
        """Rows in the batches."""
        return sum(len(batch.rows) for batch in self._batches)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self.running

    def news(self) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
        """What was drawn of completions under way since the last call (`Row.news`)."""
        rows = (row for batch in self._batches for row in batch.rows)
        return tuple(news for row in rows if (news := row.news()) is not None)

    def submit(self, row: Row) -> None:
        self._waiting.append(row)

    def cancel(self, number: int) -> None:
        """Drop a completion that isn't wanted any more."""
        self._waiting = deque(row for row in self._waiting if row.number != number)
        with torch.inference_mode():
            for batch in self._batches:
                for row in [each for each in batch.rows if each.number == number]:
                    self._let_go(batch, row)

    def publish(self, version: int, weights: Path) -> None:
        """What joins from now on is drawn with these weights.

        Raises:
            PolicyError: they can't be read; all is as it was.
        """
        self._number += 1
        self._versions.add(self._number, weights)
        self._batches.append(self._batch(version))
        self._prefixes.clear()
        self._drop_unused()

    def step(self) -> None:
        """Compute one token of each row, or a chunk of its prompt."""
        with torch.inference_mode():
            self._admit()
            for batch in tuple(self._batches):
                for advance in (batch.decode, batch.prefill):
                    self._advance(batch, advance)
        self._drop_unused()

    def _advance(
        self, batch: SamplingBatch, advance: Callable[[], list[tuple[Row, StopReason]]]
    ) -> None:
        try:
            over = advance()
        except torch.OutOfMemoryError:
            self._make_room(batch)
            return
        except PolicyError as error:
            for row in tuple(batch.rows):
                batch.leave(row)
                self._answered(row.number, error)
            return
        for row, reason in over:
            self._let_go(batch, row)
            self._answered(row.number, row.sample(batch.version, reason))

    def _admit(self) -> None:
        later: deque[Row] = deque()
        while self._waiting and self.running < self._max_rows:
            row = self._waiting.popleft()
            batch = self._batch_for(row)
            held, prefix = 0, None
            if batch is self._batches[-1]:
                held, prefix = self._prefixes.find(row.ids)
            if batch.wait_for(row, held):
                later.append(row)
                continue
            try:
                batch.join(row, held, prefix)
            except torch.OutOfMemoryError:
                later.append(row)
                self._make_room(batch)
                break
            row.weights = batch.weights
        self._waiting.extendleft(reversed(later))

    def _batch_for(self, row: Row) -> SamplingBatch:
        """That of the version it began with, or of the published one."""
        return next(
            (batch for batch in self._batches if batch.weights == row.weights), self._batches[-1]
        )

    def _let_go(self, batch: SamplingBatch, row: Row) -> None:
        published = batch is self._batches[-1]
        prefix = batch.leave(row, keep=published)
        if prefix is not None:
            self._prefixes.add(row.ids[: row.filled], prefix)

    def _make_room(self, batch: SamplingBatch) -> None:
        """Memory is full: prefixes go first; then the row that joined last is computed anew when
        there is room, as far as it had come and with the random stream that it has."""
        if self._prefixes.size:
            self._prefixes.clear()
        elif len(batch.rows) > 1:
            row = max(batch.rows, key=lambda each: each.number)
            batch.leave(row)
            row.filled = 0
            self._max_rows = max(1, self.running)
            self._waiting.appendleft(row)
        else:
            reason = PolicyError(
                "sampling: there is no memory for one completion; use a smaller context_limit"
            )
            for row in (*batch.rows, *self._waiting):
                self._answered(row.number, reason)
            for row in tuple(batch.rows):
                batch.leave(row)
            self._waiting.clear()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _drop_unused(self) -> None:
        wanted = {row.weights for row in self._waiting}
        for batch in self._batches[:-1]:
            if not batch.rows and batch.weights not in wanted:
                self._batches.remove(batch)
                self._versions.drop(batch.weights)

    def _batch(self, version: int) -> SamplingBatch:
        return SamplingBatch(
            version, self._number, self._versions.forward(self._number), self._versions.config,
            self._dtype, self._device, self._endings,
        )  # fmt: skip


def _prefix_bytes(device: torch.device) -> int:
    free = psutil.virtual_memory().available
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    return min(_PREFIX_BYTES, int(free * _PREFIX_SHARE))


_SHORTEST = 16
"""Fewer tokens are computed sooner than looked for and copied."""


class Prefixes:
    """Keys and values of prompts, for one version of the weights: others give other ones."""

    def __init__(self, limit: int) -> None:
        """`limit`: bytes."""
        self._limit = limit
        self._size = 0
        self._held: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._size

    def add(self, tokens: Sequence[int], prefix: Prefix) -> None:
        """Hold the `prefix` of these tokens, in place of what they begin with."""
        ids = tuple(tokens)
        if prefix.size > self._limit:
            return
        for known in [each for each in self._held if ids[: len(each)] == each]:
            self._drop(known)
        self._held[ids] = prefix
        self._size += prefix.size
        while self._size > self._limit:
            self._drop(next(iter(self._held)))

    def find(self, tokens: Sequence[int]) -> tuple[int, Prefix | None]:
        """How many first ones of these tokens are held, and the prefix that has them."""
        ids = tuple(tokens)
        length = 0
        found: tuple[int, ...] | None = None
        for known in self._held:
            common = longest_common(known, ids)
            if common > length:
                length, found = common, known
        if found is None or length < _SHORTEST:
            return 0, None
        self._held.move_to_end(found)
        return length, self._held[found]

    def clear(self) -> None:
        self._held.clear()
        self._size = 0

    def _drop(self, ids: tuple[int, ...]) -> None:
        self._size -= self._held.pop(ids).size
