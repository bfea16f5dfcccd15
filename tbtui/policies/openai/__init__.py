"""A model behind a Chat Completions API: OpenAI's own, Ollama, llama.cpp, LM Studio, and others.

Such a server takes messages and gives no token ids, so its model can be evaluated and not trained.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from tbtui.invocation import to_type
from tbtui.policies import Backend, lost_password, sampling_of

if TYPE_CHECKING:
    from tbtui.config import RunConfig
    from tbtui.config.values import Problem
    from tbtui.policies.base import Policy

_MOST_STOPS = 4


def _make(config: RunConfig, log_file: IO[bytes]) -> Policy:
    from tbtui.policies.openai.policy import OpenAIPolicy
    from tbtui.policies.work import ServerSettings

    return OpenAIPolicy(
        ServerSettings(
            model_name=config.model_name,
            base_url=config.openai_base_url,
            context_limit=config.context_limit,
            sampling=sampling_of(config, config.eval_temperature),
        ),
        log_file,
    )


def _problems(config: RunConfig) -> Iterator[Problem]:
    from tbtui.config.values import as_typed, error

    if config.step_limit != 0:
        yield error(
            "policy=openai: a server with chat alone gives no token ids, so its model can only be"
            f" evaluated; use {to_type('eval', *as_typed(config, 'max_steps', 'n_epochs'))},"
            " or train with policy=tinker or policy=torch"
        )
    if "model_name" not in config.given:
        yield error("model_name: give the name under which the server has the model")
    yield from lost_password("openai_base_url", config.openai_base_url)
    if config.checkpoint is not None:
        yield error(f"checkpoint={config.checkpoint}: the server has its own weights; leave it out")
    yield from _sampling_problems(config)


def _sampling_problems(config: RunConfig) -> Iterator[Problem]:
    from tbtui.config.values import error

    if len(config.stop) > _MOST_STOPS:
        yield error(
            f"stop: there are {len(config.stop)} texts; the Chat Completions API takes"
            f" {_MOST_STOPS} at most"
        )
    if config.openai_base_url or os.environ.get("OPENAI_BASE_URL"):
        return  # vLLM, llama.cpp and others take them beside the API's own
    for name, value in (("top_k", config.top_k), ("min_p", config.min_p)):
        if value:
            yield error(
                f"{name}={value:g}: OpenAI's API has temperature and top_p alone; leave it out"
            )


def _preflight(config: RunConfig) -> tuple[str, ...]:
    from tbtui.policies.base import PolicyRefusedError

    elsewhere = config.openai_base_url or os.environ.get("OPENAI_BASE_URL")
    if not (elsewhere or os.environ.get("OPENAI_API_KEY")):
        raise PolicyRefusedError(
            "policy=openai: there is no API key; set OPENAI_API_KEY in the environment or in .env,"
            " or name another server with openai_base_url="
        )
    return ()


BACKEND = Backend(
    _make,
    _problems,
    address=("openai_base_url", "OpenAI-compatible"),
    preflight=_preflight,
)
