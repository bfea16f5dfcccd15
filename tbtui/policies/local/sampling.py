"""Batched sampling with a key/value cache and exact log-probabilities.

Each row draws from a random stream of its own, named by its seed, so a completion doesn't depend
on what else is in the batch, as far as floating point allows: a matrix product's last bits depend
on its height, so a draw can differ where the random number falls that close to a boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tbtui.algorithm.truncation import truncated
from tbtui.policies.base import Sample, SampleRequest, SamplingParams, StopReason
from tbtui.policies.local.gradient import LARGEST_PACK
from tbtui.policies.local.model import (
    Array,
    IntArray,
    Layer,
    Packed,
    Parameters,
    Rotary,
    forward,
    rms_norm,
    softmax_in_place,
)
from tbtui.policies.policy_process import Publish, PublishedWeights, TrainingOrder, TrainingResult

_HIDDEN = np.float32(-1e30)
_SEED_MASK = (1 << 64) - 1
_COMPACT_BELOW = 0.7
"""Share of unfinished rows below which finished ones are dropped from the cache."""


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Order to the policy's process: sample these as one batch."""

    requests: tuple[SampleRequest, ...]


type Order = TrainingOrder | Publish | SampleBatch
type Result = TrainingResult | PublishedWeights | tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class LocalCompletion:
    """Token ids (the stop token included) and the log-probabilities of each."""

    ids: tuple[int, ...]
    logprobs: npt.NDArray[np.float32]
    model_logprobs: npt.NDArray[np.float32] | None
    """As in `Sample`."""
    stop_reason: StopReason


class _Cache:
    """Keys and values of B rows: [layers, B, heads, length, head_size], and each row's fill."""

    def __init__(self, parameters: Parameters, prompts: Sequence[IntArray], room: int) -> None:
        config = parameters.config
        shape = (config.layers, len(prompts), config.heads, room, config.head_size)
        self.keys = np.zeros(shape, np.float32)
        self.values = np.zeros(shape, np.float32)
        self.filled = np.array([len(prompt) for prompt in prompts], np.int64)

    def keep(self, rows: IntArray) -> None:
        longest = int(self.filled[rows].max())
        room = self.keys.shape[3]
        fresh_keys = np.zeros((*self.keys.shape[:1], len(rows), *self.keys.shape[2:]), np.float32)
        fresh_values = np.zeros_like(fresh_keys)
        used = min(longest + 1, room)
        fresh_keys[:, :, :, :used] = self.keys[:, rows, :, :used]
        fresh_values[:, :, :, :used] = self.values[:, rows, :, :used]
        self.keys, self.values, self.filled = fresh_keys, fresh_values, self.filled[rows]


def _prefill(
    parameters: Parameters, rotary: Rotary, prompts: Sequence[IntArray], room: int
) -> tuple[_Cache, Array]:
    """A filled cache, and each prompt's last hidden state [B, width].

    A prompt that several rows share (a group's first turn) is computed once.
    """
    cache = _Cache(parameters, prompts, room)
    hidden = np.empty((len(prompts), parameters.config.width), np.float32)
    rows_of: dict[bytes, list[int]] = {}
    for row, prompt in enumerate(prompts):
        rows_of.setdefault(prompt.tobytes(), []).append(row)
    groups = sorted(rows_of.values(), key=lambda rows: len(prompts[rows[0]]))
    while groups:
        longest = len(prompts[groups[-1][0]])
        count = max(1, LARGEST_PACK // longest)
        pack, groups = groups[-count:], groups[:-count]
        packed = Packed.of([prompts[rows[0]] for rows in pack])
        last, traces = forward(parameters, packed, rotary)
        for index, rows in enumerate(pack):
            length = len(prompts[rows[0]])
            hidden[rows] = last[packed.starts[index] + length - 1]
            for number, trace in enumerate(traces):
                cache.keys[number, rows, :, :length] = trace.keys[index, :, :length]
                cache.values[number, rows, :, :length] = trace.values[index, :, :length]
    return cache, hidden


def _decode_layer(
    layer: Layer, x: Array, number: int, cache: _Cache, hidden_mask: Array, rotary: Rotary,
    epsilon: float,
) -> Array:  # fmt: skip
    """One layer for one new token per row: x [B, width] in and out; extends the cache."""
    rows, width = x.shape
    heads, head_size = cache.keys.shape[2], cache.keys.shape[4]
    normed = rms_norm(x, layer.attention_norm, epsilon).out
    qkv = (normed @ layer.qkv).reshape(rows, 3, heads, head_size)
    queries = rotary.rotate(qkv[:, 0], cache.filled) * np.float32(head_size**-0.5)
    index = np.arange(rows)
    cache.keys[number, index, :, cache.filled] = rotary.rotate(qkv[:, 1], cache.filled)
    cache.values[number, index, :, cache.filled] = qkv[:, 2]
    length = hidden_mask.shape[-1]
    scores = np.matmul(cache.keys[number, :, :, :length], queries[..., None])[..., 0]
    scores += hidden_mask
    softmax_in_place(scores)
    attended = np.matmul(scores[:, :, None], cache.values[number, :, :, :length])[:, :, 0]
    x = x + attended.reshape(rows, width) @ layer.attention_out
    gate_up = rms_norm(x, layer.mlp_norm, epsilon).out @ layer.gate_up
    gate, up = np.split(gate_up, 2, axis=1)
    result: Array = x + (gate / (1 + np.exp(-gate)) * up) @ layer.down
    return result


def _draw(
    logits: Array, params: Sequence[SamplingParams], uniforms: npt.NDArray[np.float64]
) -> tuple[IntArray, Array, Array]:
    """One token per row, its log-probability under the distribution that was drawn from and under
    the model's, by inverting the cumulative distribution.

    A temperature of 0 takes the likeliest token, with probability 1.
    """
    temperatures = np.array([row.temperature for row in params])
    greedy = temperatures == 0
    scaled = logits / np.where(greedy, 1, temperatures).astype(np.float32)[:, None]
    for row, sampling in enumerate(params):
        if sampling.truncates:
            scaled[row] = truncated(scaled[row], sampling)
    scaled -= scaled.max(-1, keepdims=True)
    weights = np.exp(scaled)
    cumulative = np.cumsum(weights, axis=-1, dtype=np.float64)
    total = cumulative[:, -1]
    # Rounding must not take it to the end, where tokens of no probability may lie.
    thresholds = np.minimum(uniforms * total, np.nextafter(total, 0))
    tokens = (cumulative <= thresholds[:, None]).sum(-1)
    tokens = np.where(greedy, scaled.argmax(-1), tokens)
    index = np.arange(len(tokens))
    logprobs = scaled[index, tokens] - np.log(weights.sum(-1))
    of_model = logprobs.copy()
    for row, sampling in enumerate(params):
        if not sampling.is_model:
            of_model[row] = _model_logprob(logits[row], int(tokens[row]))
    return tokens, np.where(greedy, np.float32(0), logprobs), of_model


def _model_logprob(logits: Array, token: int) -> np.float32:
    shifted = logits - logits.max()
    logprob: np.float32 = shifted[token] - np.log(np.exp(shifted).sum())
    return logprob


def sample(
    parameters: Parameters, rotary: Rotary, requests: Sequence[SampleRequest], stop_id: int
) -> list[LocalCompletion]:
    """One completion per request. Each prompt plus max_tokens must fit the context limit."""
    config = parameters.config
    prompts = [np.array(request.prompt_ids, np.int64) for request in requests]
    limits = np.array([request.max_tokens for request in requests])
    streams = np.zeros((len(requests), int(limits.max())))
    for row, request in enumerate(requests):
        rng = np.random.default_rng(request.seed & _SEED_MASK)
        streams[row, : request.max_tokens] = rng.random(request.max_tokens)
    room = max(len(p) + int(limit) for p, limit in zip(prompts, limits, strict=True))
    cache, hidden = _prefill(parameters, rotary, prompts, room)

    ids: list[list[int]] = [[] for _ in requests]
    logprobs: list[list[float]] = [[] for _ in requests]
    of_model: list[list[float]] = [[] for _ in requests]
    reasons: list[StopReason] = ["length"] * len(requests)
    live = np.arange(len(requests))  # which request each cached row belongs to
    done = np.zeros(len(requests), bool)
    for step in range(int(limits.max())):
        normed = rms_norm(hidden, parameters.final_norm, config.norm_epsilon).out
        tokens, drawn, models = _draw(
            normed @ parameters.embedding.T,
            [requests[int(index)].sampling for index in live],
            streams[live, step],
        )
        for row, request_index in enumerate(live):
            if done[request_index]:
                continue
            token = int(tokens[row])
            ids[request_index].append(token)
            logprobs[request_index].append(float(drawn[row]))
            of_model[request_index].append(float(models[row]))
            if token == stop_id:
                reasons[request_index] = "stop"
            done[request_index] = token == stop_id or step + 1 == limits[request_index]
        alive = np.flatnonzero(~done[live])
        if not len(alive):
            break
        if len(alive) < _COMPACT_BELOW * len(live):
            cache.keep(alive)
            live, tokens = live[alive], tokens[alive]
        # A finished row rides along until the next compaction; it must not run past its room.
        np.minimum(cache.filled, room - 1, out=cache.filled)
        length = int(cache.filled.max()) + 1
        mask = np.where(np.arange(length) > cache.filled[:, None], _HIDDEN, np.float32(0))
        hidden = parameters.embedding[tokens]
        for number, layer in enumerate(parameters.layers):
            hidden = _decode_layer(
                layer, hidden, number, cache, mask[:, None], rotary, config.norm_epsilon
            )
        cache.filled += 1
    return [
        LocalCompletion(
            tuple(ids[row]),
            np.array(logprobs[row], np.float32),
            None if request.sampling.is_model else np.array(of_model[row], np.float32),
            reasons[row],
        )
        for row, request in enumerate(requests)
    ]
