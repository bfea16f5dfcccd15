"""Protobuf and JSON, in and out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from tinker.proto import tinker_public_pb2 as pb

from tbtui.policies.base import Sample
from tests.tinker_server.errors import HttpError
from tests.tinker_server.losses import Floats, WireDatum

PROTOBUF = "application/x-protobuf"
_DTYPES: Mapping[int, npt.DTypeLike] = {pb.DTYPE_FLOAT32: np.float32, pb.DTYPE_INT64: np.int64}

Answer = dict[str, Any] | bytes
"""A future's result: JSON, or a message of protobuf."""


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """`forward` and `forward_backward`."""

    model_id: str
    seq_id: int
    loss_fn: str
    config: Mapping[str, float | str]
    data: list[WireDatum]
    forward_only: bool


def training_answer(logprobs: Sequence[Floats], metrics: Mapping[str, float]) -> bytes:
    """`logprobs[i]`: of every target of datum i."""
    message = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    record = message.loss_fn_outputs.add(type_tag="ArrayRecord", num_datums=len(logprobs))
    tensor = record.fields["logprobs"]
    tensor.dtype = pb.DTYPE_FLOAT32
    tensor.data = b"".join(each.astype(np.float32).tobytes() for each in logprobs)
    sizes = [4 * len(each) for each in logprobs]
    tensor.offsets = np.cumsum([0, *sizes]).astype(np.int64).tobytes()
    for name, value in metrics.items():
        message.metrics[name] = value
    return bytes(message.SerializeToString())


def sample_answer(sample: Sample, cached_tokens: int, prompt_logprobs: Floats | None) -> bytes:
    """`prompt_logprobs`: NaN where there is none."""
    message = pb.SampleResponse(prompt_cache_hit_tokens=cached_tokens)
    stopped = sample.stop_reason == "stop"
    message.sequences.add(
        stop_reason=pb.STOP_REASON_STOP if stopped else pb.STOP_REASON_LENGTH,
        tokens=np.array(sample.completion_ids, np.int32).tobytes(),
        logprobs=sample.logprobs.astype(np.float32).tobytes(),
    )
    if prompt_logprobs is not None:
        message.prompt_logprobs = prompt_logprobs.astype(np.float32).tobytes()
    return bytes(message.SerializeToString())


def read_json(body: bytes) -> dict[str, Any]:
    """Raises `HttpError` 400."""
    try:
        content = json.loads(body or b"{}")
    except ValueError as error:
        raise HttpError(400, f"the body is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise HttpError(422, "the body is not an object")
    return content


def read_training(body: bytes, encoding: str) -> TrainingRequest:
    """Raises `HttpError` 422."""
    if encoding == "zstd":
        body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
    try:
        return _from_proto(body)
    except (KeyError, TypeError, ValueError, DecodeError) as error:
        raise HttpError(422, f"the request can't be read: {error!r}") from error


def _from_proto(body: bytes) -> TrainingRequest:
    message = pb.ForwardBackwardRequest()
    message.ParseFromString(body)
    config: dict[str, float | str] = {**message.loss_fn_config}
    for name, value in message.loss_fn_config_v2.items():
        config[name] = value.text if value.WhichOneof("value") == "text" else value.number
    data = []
    for datum in message.data:
        if any(chunk.WhichOneof("chunk") != "encoded_text" for chunk in datum.model_input):
            raise HttpError(422, "only text tokens are supported")
        tokens = b"".join(chunk.encoded_text.tokens for chunk in datum.model_input)
        inputs = {name: _tensor(name, value) for name, value in datum.loss_fn_inputs.items()}
        data.append(WireDatum(np.frombuffer(tokens, np.int32).astype(np.int64), inputs))
    return TrainingRequest(
        message.model_id, message.seq_id, message.loss_fn, config, data,
        message.forward_only,
    )  # fmt: skip


def _tensor(name: str, message: pb.Tensor) -> npt.NDArray[np.generic]:
    if message.HasField("sparse_csr"):
        raise HttpError(422, f"{name} is sparse; only dense arrays are supported")
    array = np.frombuffer(message.dense, _DTYPES[message.dtype])
    return array.reshape(list(message.shape)) if message.shape else array


def prompt_tokens(model_input: Mapping[str, Any]) -> list[int]:
    """Raises `HttpError` 422 for anything but text tokens."""
    tokens: list[int] = []
    for chunk in model_input["chunks"]:
        if chunk.get("type", "encoded_text") != "encoded_text":
            raise HttpError(422, "only text tokens are supported")
        tokens += chunk["tokens"]
    return tokens
