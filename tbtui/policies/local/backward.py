"""The backward pass: gradients added to `gradient`, layer by layer from the last to the first."""

from __future__ import annotations

import numpy as np

from tbtui.policies.local.forward import QUERY_BLOCK, LayerTrace, Normed, Packed
from tbtui.policies.local.model import Array, Layer, Parameters, Rotary


def rms_norm_backward(d_out: Array, gain: Array, normed: Normed, d_gain: Array) -> Array:
    """Gradient of the norm's input; the gain's is added to `d_gain`."""
    d_gain += np.einsum("nd,nd->d", d_out, normed.unit)
    d_unit = d_out * gain
    mean = np.einsum("nd,nd->n", d_unit, normed.unit)[:, None] / np.float32(d_out.shape[1])
    result: Array = normed.inverse_rms * (d_unit - normed.unit * mean)
    return result


def _attend_backward(d_attended: Array, trace: LayerTrace) -> tuple[Array, Array, Array]:
    """Gradients of the (scaled) queries, the keys and the values; all [B, heads, T, head_size]."""
    queries, keys, values = trace.queries, trace.keys, trace.values
    d_queries = np.empty_like(queries)
    d_keys, d_values = np.zeros_like(keys), np.zeros_like(values)
    length = queries.shape[2]
    block = min(QUERY_BLOCK, length)
    # Softmax's gradient needs sum(p * dp) per query, which equals sum(out * d_out).
    dot = np.einsum("bhtd,bhtd->bht", d_attended, trace.attended)[..., None]
    for probabilities, start in zip(trace.probabilities, range(0, length, block), strict=True):
        end = min(start + block, length)
        d_block = d_attended[:, :, start:end]
        d_values[:, :, :end] += probabilities.transpose(0, 1, 3, 2) @ d_block
        d_scores = d_block @ values[:, :, :end].transpose(0, 1, 3, 2)
        d_scores -= dot[:, :, start:end]
        d_scores *= probabilities
        d_queries[:, :, start:end] = d_scores @ keys[:, :, :end]
        d_keys[:, :, :end] += d_scores.transpose(0, 1, 3, 2) @ queries[:, :, start:end]
    return d_queries, d_keys, d_values


def layer_backward(
    layer: Layer, d_x: Array, trace: LayerTrace, packed: Packed, rotary: Rotary, gradient: Layer
) -> Array:
    """d_x [N, width] of the layer's output -> of its input; adds to the layer's `gradient`."""
    count, width = d_x.shape
    heads, head_size = trace.queries.shape[1], trace.queries.shape[3]
    hidden = trace.gate.shape[1]

    gradient.down[...] += trace.activated.T @ d_x
    d_activated = d_x @ layer.down.T
    d_gate_up = np.empty((count, 2 * hidden), np.float32)
    d_gate_up[:, hidden:] = d_activated * (trace.gate * trace.sigmoid)
    slope = trace.sigmoid * (1 + trace.gate * (1 - trace.sigmoid))
    d_gate_up[:, :hidden] = d_activated * trace.up * slope
    gradient.gate_up[...] += trace.mlp_in.out.T @ d_gate_up
    d_mlp_in = d_gate_up @ layer.gate_up.T
    d_x = d_x + rms_norm_backward(d_mlp_in, layer.mlp_norm, trace.mlp_in, gradient.mlp_norm)

    gradient.attention_out[...] += trace.attended_flat.T @ d_x
    d_attended = packed.pad((d_x @ layer.attention_out.T).reshape(count, heads, head_size))
    d_queries, d_keys, d_values = _attend_backward(d_attended, trace)
    scale = np.float32(head_size**-0.5)
    d_qkv = np.empty((count, 3, heads, head_size), np.float32)
    positions = packed.positions
    d_qkv[:, 0] = rotary.rotate(packed.unpad(d_queries) * scale, positions, backward=True)
    d_qkv[:, 1] = rotary.rotate(packed.unpad(d_keys), positions, backward=True)
    d_qkv[:, 2] = packed.unpad(d_values)
    d_flat = d_qkv.reshape(count, 3 * width)
    gradient.qkv[...] += trace.attention_in.out.T @ d_flat
    d_in = d_flat @ layer.qkv.T
    return d_x + rms_norm_backward(
        d_in, layer.attention_norm, trace.attention_in, gradient.attention_norm
    )


def backward(
    parameters: Parameters,
    d_x: Array,
    traces: list[LayerTrace],
    packed: Packed,
    rotary: Rotary,
    gradient: Parameters,
) -> None:
    """From d_x [N, width] at the last layer's output down to the embedding.

    Consumes `traces`, so that each layer's memory is free as soon as it has been used.
    """
    for index in reversed(range(len(parameters.layers))):
        d_x = layer_backward(
            parameters.layers[index], d_x, traces.pop(), packed, rotary, gradient.layers[index]
        )
    np.add.at(gradient.embedding, packed.tokens, d_x)
