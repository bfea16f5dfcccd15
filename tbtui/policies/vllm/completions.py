"""Completions of token ids, with token ids: the request's body and the answer's reading.

`/v1/completions` takes a prompt of token ids as it is; with `return_token_ids` (vLLM from 0.10.2
on) the answer has those that were drawn, so that nothing is tokenised again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tbtui.policies.base import PolicyError, PolicyRefusedError, Sample, SampleRequest, StopReason

PATH = "/v1/completions"
_SEEDS = 2**63
"""A server's seeds are smaller than this."""


class UnableError(PolicyRefusedError):
    """The server doesn't tell what a sample needs."""


def completion_body(
    model_name: str, request: SampleRequest, stop_ids: Sequence[int]
) -> dict[str, Any]:
    """What to post. The model's own distribution is asked for: left out, a vLLM server takes
    `top_p`, `top_k` and penalties from the model's `generation_config.json`."""
    return {
        "model": model_name,
        "prompt": list(request.prompt_ids),
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed % _SEEDS,
        "stop_token_ids": list(stop_ids),
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logprobs": 1,
        "return_token_ids": True,
    }


def read_completion(content: Any, request: SampleRequest) -> Sample:
    """Raises `UnableError` where token ids or log-probabilities are missing, else `PolicyError`
    for an answer that can't be read or isn't one to the request."""
    try:
        (choice,) = content["choices"]
        ids = choice.get("token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        finish, echoed = choice["finish_reason"], choice.get("prompt_token_ids")
        details = (content.get("usage") or {}).get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PolicyError(f"sampling: the server's answer can't be read ({error!r})") from error
    if not isinstance(ids, list):
        raise UnableError(
            "sampling: the server tells no token ids (return_token_ids); vLLM does from 0.10.2 on"
        )
    if not isinstance(logprobs, list) or len(logprobs) != len(ids) or None in logprobs:
        raise UnableError("sampling: the server doesn't tell each token's log-probability")
    if echoed is not None and tuple(echoed) != request.prompt_ids:
        raise PolicyError(
            f"sampling: the server took {len(echoed)} tokens for a prompt of"
            f" {len(request.prompt_ids)}, and not the same ones"
        )
    if not ids or len(ids) > request.max_tokens:
        raise PolicyError(
            f"sampling: the server drew {len(ids)} tokens; max_tokens={request.max_tokens}"
        )
    if finish not in ("stop", "length"):
        raise PolicyError(f"sampling: the server gave the completion up ({finish})")
    return Sample(
        completion_ids=tuple(ids),
        logprobs=np.array(logprobs, np.float32),
        stop_reason=cast(StopReason, finish),
        weights_version=0,
        cached_tokens=cached,
    )
