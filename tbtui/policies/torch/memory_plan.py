"""How much memory a model takes to train and to sample from here: the formulas, and what fits.

All sizes are in bytes. Parameters, adapter, gradients, optimiser and keys and values are exact:
they follow from the shapes of the model's tensors and from `optimizer.py` and `slots.py`.
Activations and logits are an estimate: with 256-wide models of the Qwen3, Llama and Gemma-3
architectures, sequences of 4,096 tokens on a CPU took between 0.6 and 1.5 times as much, in fp32
and bf16, with and without gradient checkpointing. What runtimes take on a GPU is an assumption.
Nothing here imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tbtui.policies.torch.model_files import ModelFiles, Shapes

CHUNK_NUMBERS = 1 << 26
"""Logits that exist at one time, where they are computed in chunks: 256 MiB in fp32."""
ACTIVATION_SHARE = 0.6
"""Share of the free memory for a micro-batch's activations; the rest is for logits, gradients and
fragmentation."""
LEAST_TOKENS, MOST_TOKENS = 512, 65_536
"""Size of a micro-batch that is chosen by itself, on a GPU."""
TOKENS_ON_CPU = 4096
"""Larger micro-batches are no faster there."""
RUNTIME = 0.5e9
"""A process's CUDA context and libraries; an assumption."""
VLLM_RUNTIME = 2.5e9
"""A vLLM server's, with the activations of a forward; an assumption, as in `vllm_memory.py`."""
_FP32 = 4
_LOGITS_COPIES = 4
"""Copies of a chunk's logits in fp32: themselves, their softmax, gradients, one being computed."""
_HEADS = ("lm_head", "embed_out", "output")
_EMBEDDINGS = ("embed_tokens", "wte", "wpe", "embed_in", "word_embeddings", "position_embedding")
_ROOM_STEP = 256
"""`slots.py` adds columns so many at a time."""

Part = Literal["training", "sampling"]


@dataclass(frozen=True, slots=True)
class Dimensions:
    """What formulas need of a model's config."""

    width: int
    inner: int
    """Width of the feed-forward part."""
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    context: int | None
    """Tokens; None: the config doesn't say."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Dimensions:
        """Raises `KeyError` where the config lacks what every decoder has."""
        text: Mapping[str, Any] = config.get("text_config") or config

        def first(*names: str) -> int:
            found = next((text[name] for name in names if text.get(name)), None)
            if found is None:
                raise KeyError(names[0])
            return int(found)

        width = first("hidden_size", "n_embd", "d_model")
        heads = first("num_attention_heads", "n_head")
        context = text.get("max_position_embeddings") or text.get("n_positions")
        return cls(
            width=width,
            inner=int(text.get("intermediate_size") or text.get("n_inner") or 4 * width),
            layers=first("num_hidden_layers", "n_layer"),
            heads=heads,
            kv_heads=int(text.get("num_key_value_heads") or heads),
            head_size=int(text.get("head_dim") or width // heads),
            vocabulary=first("vocab_size"),
            context=None if context is None else int(context),
        )


def parameters(shapes: Shapes, config: Mapping[str, Any]) -> int:
    """How many numbers the model has; an output head that shares the embeddings' counts once, even
    where it is stored too."""
    tied = config.get("tie_word_embeddings", True)
    return sum(
        math.prod(shape)
        for name, shape in shapes.items()
        if not (tied and _module(name) == "lm_head")
    )


def linear_layers(shapes: Shapes) -> dict[str, tuple[int, int]]:
    """The linear layers that PEFT's `all-linear` adapts, by name -> size of both sides."""
    return {
        name.removesuffix(".weight"): (shape[0], shape[1])
        for name, shape in shapes.items()
        if name.endswith(".weight")
        and len(shape) == 2
        and _module(name) not in (*_HEADS, *_EMBEDDINGS)
    }


def adapted(shapes: Shapes, targets: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """The layers that get an adapter; `targets` are ends of their names, empty: all of them."""
    return {
        name: sides
        for name, sides in linear_layers(shapes).items()
        if not targets or any(name == each or name.endswith(f".{each}") for each in targets)
    }


def adapter_parameters(shapes: Shapes, rank: int, targets: tuple[str, ...]) -> int:
    """Numbers of a LoRA adapter: rank x (inputs + outputs) for each layer (Hu et al. 2021)."""
    return sum(rank * (one + other) for one, other in adapted(shapes, targets).values())


def kv_bytes_per_token(sizes: Dimensions, itemsize: int) -> int:
    """Keys and values of a token in all layers; `slots.py` keeps those of sliding windows too."""
    return 2 * sizes.layers * sizes.kv_heads * sizes.head_size * itemsize


def slot_columns(context: int) -> int:
    """Tokens that a slot of the transformers sampler has room for."""
    return -(-context // _ROOM_STEP) * _ROOM_STEP


def activation_bytes_per_token(
    width: int, inner: int, layers: int, itemsize: int, *, checkpointing: bool
) -> int:
    """Bytes that a forward pass keeps alive for its backward pass, for each token.

    With gradient checkpointing (Chen et al. 2016) that is each layer's input and one layer's
    activations, else all layers' activations: about 20 vectors of the model's width and 4 of the
    feed-forward's. Attention adds none that grow with the square of the length (PyTorch's SDPA).
    """
    one_layer = 20 * width + 4 * inner
    return (layers * width + one_layer if checkpointing else layers * one_layer) * itemsize


def chunk_length(vocabulary: int) -> int:
    """Positions whose logits exist at one time (`logprobs.py`)."""
    return max(1, CHUNK_NUMBERS // vocabulary)


def logits_bytes(vocabulary: int, tokens: int) -> int:
    """What the logits of one chunk take in the backward pass."""
    return min(chunk_length(vocabulary), tokens) * vocabulary * _FP32 * _LOGITS_COPIES


def micro_batch_on_cpu(free: int, per_token: int) -> int:
    """Tokens of one pass on a CPU with so many bytes free, where nothing says that they are used
    up before the whole machine suffers from it."""
    return min(TOKENS_ON_CPU, micro_batch_for(free, per_token))


def micro_batch_for(free: int, per_token: int) -> int:
    """Tokens of one pass on a GPU with so many bytes free."""
    return max(LEAST_TOKENS, min(MOST_TOKENS, int(free * ACTIVATION_SHARE) // per_token))


def _module(name: str) -> str:
    """`q_proj` of `model.layers.0.self_attn.q_proj.weight`."""
    return name.removesuffix(".weight").rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """The settings that memory depends on, under their names in a run."""

    lora_rank: int
    lora_targets: tuple[str, ...]
    itemsize: int
    """Bytes of a number that the model computes in: 2 (bf16) or 4 (fp32)."""
    on_gpu: bool
    vllm: bool
    context_limit: int
    n_parallel_envs: int
    gradient_checkpointing: bool = True
    micro_batch_tokens: int = 0
    """Tokens of one pass; 0: chosen by what is left."""


@dataclass(frozen=True, slots=True)
class Item:
    """A row of the memory table."""

    what: str
    part: Part
    size: int
    """Bytes."""
    note: str


def items(model: ModelFiles, settings: PlanSettings) -> Iterator[Item]:
    """What training and sampling take, each with a copy of the model's weights.

    Activations are those of a micro-batch, and of one sequence as long as the context limit at
    least, which can't be divided; keys and values those of all trials at the context limit.
    """
    assert model.shapes is not None
    sizes = Dimensions.of(model.config)
    count, itemsize = parameters(model.shapes, model.config), settings.itemsize
    rank, context = settings.lora_rank, settings.context_limit
    kind = {2: "bf16", 4: "fp32"}[itemsize]
    yield Item("weights", "training", count * itemsize, f"{count:,} parameters in {kind}")
    if rank:
        trained = adapter_parameters(model.shapes, rank, settings.lora_targets)
        yield Item("adapter", "training", trained * _FP32, f"{trained:,} parameters in fp32")
    else:
        trained = count
    yield Item("gradients", "training", trained * _FP32, "fp32")
    master = 0 if rank or itemsize == _FP32 else trained * _FP32
    moments = "two moments in fp32" + (" and a copy of the weights" if master else "")
    yield Item("optimiser", "training", 2 * trained * _FP32 + master, moments)
    per_token = activation_bytes_per_token(
        sizes.width, sizes.inner, sizes.layers, itemsize,
        checkpointing=settings.gradient_checkpointing,
    )  # fmt: skip
    checkpointed = "with" if settings.gradient_checkpointing else "without"
    tokens = max(context, settings.micro_batch_tokens)
    note = f"{tokens:,} tokens at once, {checkpointed} gradient checkpointing"
    yield Item("activations", "training", per_token * tokens, note)
    logits = logits_bytes(sizes.vocabulary, tokens)
    yield Item("logits", "training", logits, f"one chunk, vocabulary of {sizes.vocabulary:,}")
    copies = 1 if rank else 2
    note = "a copy of its own" if copies == 1 else "two versions while one replaces the other"
    yield Item("weights", "sampling", copies * count * itemsize, note)
    rows = settings.n_parallel_envs
    columns = context if settings.vllm else slot_columns(context)
    keys = kv_bytes_per_token(sizes, itemsize) * columns
    note = f"{rows} trial{'s' * (rows != 1)} of {context:,} tokens, {gib(keys)} each"
    yield Item("KV cache", "sampling", keys * rows, note)
    if settings.on_gpu:
        yield Item("runtime", "training", int(RUNTIME), "CUDA context")
        runtime = VLLM_RUNTIME if settings.vllm else RUNTIME
        note = "CUDA context, graphs and a forward pass" if settings.vllm else "CUDA context"
        yield Item("runtime", "sampling", int(runtime), note)


def gib(size: float) -> str:
    """`1.5 GiB`; below 0.1 GiB `12.0 MiB`."""
    whole = size / (1 << 30)
    return f"{whole:,.1f} GiB" if whole >= 0.1 else f"{size / (1 << 20):,.1f} MiB"
