"""Completions that are computed together with one version of the weights.

Rows join and leave between steps. By turns, one token is computed of every row whose prompt is in
the cache, and one chunk of the prompts that aren't yet, of several rows side by side: neither a
long prompt nor a long completion holds up the others.

Slots are kept in order: rows that decode first, then those whose prompts are being computed, so
that a decoding step reads one block of memory and copies nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tbtui.policies.base import PolicyError, Sample, SampleRequest, SamplingParams, StopReason
from tbtui.policies.torch.endings import Endings
from tbtui.policies.torch.slots import Masks, Prefix, SlotPlaces, Slots, longest_common

_CHUNK_TOKENS = 1024
"""Tokens of prompts that are computed at once, padding included."""
_CHUNK_ROWS = 8
_WORTH_WAITING = 64
"""Tokens that another row is about to have computed, for which a row waits to copy them."""
_SEED_MASK = (1 << 64) - 1

type Forward = Callable[..., Any]
"""A causal LM's forward, as transformers defines it."""


@dataclass(slots=True, eq=False)
class Row:
    """One completion under way."""

    number: int
    request: SampleRequest
    ids: list[int]
    """The prompt's tokens, then those that were drawn."""
    rng: np.random.Generator
    uniform: float
    """The random number that the next token is drawn by."""
    logprobs: list[float] = field(default_factory=list)
    model_logprobs: list[float] = field(default_factory=list)
    """As in `Sample`."""
    filled: int = 0
    """Tokens that are in the cache."""
    cached: int = 0
    """Tokens of the prompt that need not be computed."""
    shown: int = 0
    """Tokens of the completion that were shown."""
    weights: int | None = None
    """Their number in `Versions`; None: it has not joined yet."""

    @classmethod
    def of(cls, number: int, request: SampleRequest) -> Row:
        rng = np.random.default_rng(request.seed & _SEED_MASK)
        return cls(number, request, list(request.prompt_ids), rng, float(rng.random()))

    @property
    def left(self) -> int:
        """Tokens to compute before the next one can be drawn."""
        return len(self.ids) - self.filled

    def news(self) -> tuple[int, int, tuple[int, ...]] | None:
        """Its number, how many tokens were shown, and those drawn since; None: there are none."""
        before, start = self.shown, len(self.request.prompt_ids)
        ids = tuple(self.ids[start + before :])
        self.shown += len(ids)
        return (self.number, before, ids) if ids else None

    def sample(self, version: int, reason: StopReason) -> Sample:
        return Sample(
            completion_ids=tuple(self.ids[len(self.request.prompt_ids) :]),
            logprobs=np.array(self.logprobs, np.float32),
            stop_reason=reason,
            weights_version=version,
            cached_tokens=self.cached,
            model_logprobs=(
                None
                if self.request.sampling.is_model
                else np.array(self.model_logprobs, np.float32)
            ),
        )


class SamplingBatch:
    """Rows of one version of the weights, and their cache. Used in `torch.inference_mode()`."""

    def __init__(
        self, version: int, weights: int, forward: Forward, config: Any, dtype: torch.dtype,
        device: torch.device, endings: Endings,
    ) -> None:  # fmt: skip
        """
        Args:
            weights: their number in `Versions`.
            forward: computes with them.
            config: the model's.

        Raises:
            ValueError: the model has layers that can't be computed in this way.
        """
        self.version = version
        self.weights = weights
        self._forward = forward
        self._dtype = dtype
        self._device = device
        self._endings = endings
        self._masks = Masks(config)
        self._cache = Slots()
        self.rows: list[Row] = []
        """By slot."""
        self._decoding = 0
        """So many first rows have their prompt in the cache."""

    def wait_for(self, row: Row, held: int) -> bool:
        """Whether a row is better off joining later, `held` of its tokens being held elsewhere: a
        prompt that is being computed begins like its own."""
        return any(
            longest_common(other.ids, row.ids) >= max(held, other.filled) + _WORTH_WAITING
            for other in self.rows[self._decoding :]
        )

    def join(self, row: Row, held: int, prefix: Prefix | None) -> None:
        """Take a row in. `prefix` has `held` of its first tokens; another row may have more.

        At least the last token is always computed: the next one is drawn after it.
        """
        slot, most = len(self.rows), len(row.ids) - 1
        source: int | None = None
        held = min(held, most)
        for index, other in enumerate(self.rows):
            common = min(longest_common(other.ids[: other.filled], row.ids), most)
            if common > held:
                held, source = common, index
        self._cache.reserve(_slots_for(slot + 1), len(row.ids))
        if source is not None:
            self._cache.copy(source, slot, held)
        elif prefix is not None:
            self._cache.put(slot, prefix, held)
        row.filled = held
        row.cached = min(held, len(row.request.prompt_ids))
        self.rows.append(row)

    def leave(self, row: Row, *, keep: bool = False) -> Prefix | None:
        """Let a row go; with `keep`, what the cache has of it (`row.filled` tokens)."""
        slot = self.rows.index(row)
        prefix = self._cache.take(slot, row.filled) if keep and row.filled else None
        if slot < self._decoding:
            self._decoding -= 1
            self._swap(slot, self._decoding)
            slot = self._decoding
        self._swap(slot, len(self.rows) - 1)
        self.rows.pop()
        return prefix

    def prefill(self) -> list[tuple[Row, StopReason]]:
        """Compute a chunk of the prompts that are not in the cache yet, and draw a first token of
        those that now are; the rows that are over with it, which have not left yet.

        Raises:
            PolicyError: the model gives no finite probabilities.
            torch.OutOfMemoryError: rows are as they were.
        """
        first = self._decoding
        if first == len(self.rows):
            return []
        chosen = self.rows[first : first + _CHUNK_ROWS]
        count = len(chosen)
        longest = max(row.left for row in chosen)
        while count > 1 and count * min(longest, _CHUNK_TOKENS) > _CHUNK_TOKENS:
            count -= 1
            longest = max(row.left for row in chosen[:count])
        chosen = chosen[:count]
        length = min(longest, _CHUNK_TOKENS)
        takes = [min(row.left, length) for row in chosen]
        ids = torch.zeros((count, length), dtype=torch.long)
        for index, (row, take) in enumerate(zip(chosen, takes, strict=True)):
            ids[index, :take] = torch.tensor(row.ids[row.filled : row.filled + take])
        ends = sorted({take - 1 for take in takes})
        logits = self._compute(chosen, first, ids, takes, torch.tensor(ends))
        done = [index for index, row in enumerate(chosen) if row.left == takes[index]]
        ready = [chosen[index] for index in done]
        over: list[tuple[Row, StopReason]] = []
        if ready:
            picked = torch.stack([logits[index, ends.index(takes[index] - 1)] for index in done])
            over = self._draw(ready, picked)
        for row, take in zip(chosen, takes, strict=True):
            row.filled += take
        for row in ready:
            self._swap(self.rows.index(row), self._decoding)
            self._decoding += 1
        return over

    def decode(self) -> list[tuple[Row, StopReason]]:
        """Draw a token of each row whose prompt is in the cache; as `prefill`."""
        rows = self.rows[: self._decoding]
        if not rows:
            return []
        ids = torch.tensor([[row.ids[row.filled]] for row in rows])
        logits = self._compute(rows, 0, ids, [1] * len(rows), torch.tensor([0]))
        over = self._draw(rows, logits[:, 0])
        for row in rows:
            row.filled += 1
        return over

    def _compute(
        self, rows: list[Row], first: int, ids: torch.Tensor, takes: list[int], keep: torch.Tensor
    ) -> torch.Tensor:
        """Logits [R, len(keep), vocabulary] after `ids` [R, Q], of which each row has its own first
        `takes`; the rows lie in slots from `first` on."""
        length = ids.shape[1]
        starts = torch.tensor([row.filled for row in rows])
        columns = starts[:, None] + torch.arange(length)
        width = int(columns.max()) + 1
        self._cache.reserve(_slots_for(len(self.rows)), width)
        # What pads a row comes after its tokens, unseen by them, and is written over later.
        positions = torch.minimum(columns, (starts + torch.tensor(takes) - 1)[:, None])
        columns = columns.to(self._device)
        slots = torch.arange(first, first + len(rows), device=self._device)
        self._cache.place = SlotPlaces(slots, columns, width, first == 0)
        out = self._forward(
            input_ids=ids.to(self._device),
            attention_mask=self._masks.of(columns, width, self._dtype),
            position_ids=positions.to(self._device),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=keep.to(self._device),
        )
        logits: torch.Tensor = out.logits
        return logits

    def _draw(self, rows: list[Row], logits: torch.Tensor) -> list[tuple[Row, StopReason]]:
        params = [row.request.sampling for row in rows]
        tokens, logprobs, of_model = draw(logits, params, [row.uniform for row in rows])
        if not np.isfinite(logprobs).all():
            raise PolicyError(
                f"sampling: version {self.version} of the weights gives no finite probabilities"
            )
        over: list[tuple[Row, StopReason]] = []
        for row, token, logprob, models in zip(rows, tokens, logprobs, of_model, strict=True):
            row.ids.append(token)
            row.logprobs.append(logprob)
            row.model_logprobs.append(models)
            row.uniform = float(row.rng.random())
            if (reason := self._endings.reason(row.request, row.ids)) is not None:
                over.append((row, reason))
        return over

    def _swap(self, one: int, other: int) -> None:
        columns = max(self.rows[one].filled, self.rows[other].filled)
        self._cache.swap(one, other, columns)
        self.rows[one], self.rows[other] = self.rows[other], self.rows[one]


def _slots_for(rows: int) -> int:
    """Slots are made by powers of two, so that few are made anew."""
    return 1 << (rows - 1).bit_length()


def draw(
    logits: torch.Tensor, params: Sequence[SamplingParams], uniforms: list[float]
) -> tuple[list[int], list[float], list[float]]:
    """One token per row of `logits` [R, vocabulary], by inverting the cumulative distribution; its
    log-probability in nats under the distribution that is sampled from, and under the model's.

    Temperature and truncation are part of the former; logits are taken to 32 bits first, whatever
    the model computes in. A row's uniform number comes from the random
    stream of its own completion, so that what is drawn doesn't depend on what else is in the batch,
    as far as floating point allows: a matrix product's last bits depend on its height.

    A temperature of 0 takes the likeliest token, with probability 1. A row without finite
    probabilities gives one that isn't finite.
    """
    device = logits.device
    greedy = torch.tensor([row.temperature == 0 for row in params], device=device)
    scales = torch.tensor([row.temperature or 1.0 for row in params], device=device)
    # MPS has no 64 bits.
    exact = torch.float32 if device.type == "mps" else torch.float64
    scaled = logits.float() / scales[:, None]
    if any(row.truncates for row in params):
        scaled = _truncated(scaled, params, exact)
    logprobs = torch.log_softmax(scaled, dim=-1)
    cumulative = logprobs.to(exact).exp().cumsum(-1)
    total = cumulative[:, -1:]
    thresholds = torch.tensor(uniforms, dtype=exact, device=device)[:, None] * total
    # Rounding must not take it to the end, where tokens of no probability may lie.
    thresholds = torch.minimum(thresholds, torch.nextafter(total, torch.zeros_like(total)))
    tokens = torch.searchsorted(cumulative, thresholds, right=True)[:, 0]
    tokens = tokens.clamp(max=logits.shape[-1] - 1)
    tokens = torch.where(greedy, logprobs.argmax(-1), tokens)
    drawn = logprobs.gather(1, tokens[:, None])[:, 0]
    of_model = drawn
    if not all(row.is_model for row in params):
        every = torch.log_softmax(logits.float(), dim=-1)
        of_model = every.gather(1, tokens[:, None])[:, 0]
    drawn = torch.where(greedy & drawn.isfinite(), torch.zeros_like(drawn), drawn)
    return tokens.tolist(), drawn.tolist(), of_model.tolist()


def _truncated(
    scaled: torch.Tensor, params: Sequence[SamplingParams], exact: torch.dtype
) -> torch.Tensor:
    """`algorithm/truncation.py` for rows of logits [R, vocabulary] that are divided by their
    temperatures; `exact`: what sums are taken in."""

    def column(values: Sequence[float], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=scaled.device)[:, None]

    size = scaled.shape[-1]
    ranked, order = scaled.sort(dim=-1, descending=True, stable=True)
    weights = (ranked - ranked[:, :1]).to(exact).exp()
    last = column([min(row.top_k or size, size) - 1 for row in params], torch.long)
    left = (weights >= column([row.min_p for row in params], exact)) & (
        ranked >= ranked.gather(1, last)
    )
    mass = torch.where(left, weights, 0.0).cumsum(-1)
    before = mass - weights
    share = column([row.top_p for row in params], exact)
    left &= (share >= 1) | (before < share * mass[:, -1:])
    return scaled.scatter(1, order, ranked.masked_fill(~left, -torch.inf))
