"""The agents that trials can run besides Terminus-2, and how each is pointed at a model endpoint.

One row per agent of Harbor's: the API that it speaks, the environment variables or arguments of
Harbor's class that take the endpoint's address and the trial's secret, or why it can't be pointed
anywhere. A test compares the rows with the installed Harbor.
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from tbtui.errors import UserError
from tbtui.imports import import_named
from tbtui.vocabulary import TERMINAL_AGENTS

if TYPE_CHECKING:
    from harbor.agents.base import BaseAgent

Api = Literal["chat-completions", "responses", "messages", "any"]
OWN_AGENTS = (*TERMINAL_AGENTS, "oracle")
"""Those that need no endpoint: the first ask the engine itself, the oracle asks no model."""


class AgentUnavailable(UserError):
    """Trials can't run that agent; the message is one line that ends with the remedy."""


@dataclass(frozen=True, slots=True)
class Pointing:
    """How an agent is pointed at the endpoint.

    In values, `{url}` is the endpoint's address, `{key}` the trial's secret, `{model}` the name
    under which the endpoint serves the policy.
    """

    api: Api
    model: str
    """What Harbor's class is given as the model's name."""
    env: Mapping[str, str] = field(default_factory=dict)
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of Harbor's class; those that a person gives go before."""

    def filled(self, url: str, key: str, model: str) -> tuple[str, dict[str, str], dict[str, Any]]:
        """The model's name, the environment variables and the arguments."""

        def fill(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {fill(name): fill(each) for name, each in value.items()}
            return value.format(url=url, key=key, model=model) if isinstance(value, str) else value

        return (
            fill(self.model),
            {name: fill(value) for name, value in self.env.items()},
            {name: fill(value) for name, value in self.kwargs.items()},
        )


_OPENAI = {
    "OPENAI_BASE_URL": "{url}/v1",
    "OPENAI_API_BASE": "{url}/v1",  # its older name
    "OPENAI_API_KEY": "{key}",
}
# Anthropic's clients add /v1 themselves.
_ANTHROPIC = {"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": "{key}"}
_LLM = {"LLM_BASE_URL": "{url}/v1", "LLM_API_KEY": "{key}", "LLM_MODEL": "openai/{model}"}

OWN_CLASS = Pointing("any", "openai/{model}", {**_OPENAI, **_ANTHROPIC, **_LLM})
"""A class of one's own finds all of them, and takes what it wants."""


def _chat(model: str = "openai/{model}", **kwargs: Any) -> Pointing:
    return Pointing("chat-completions", model, _OPENAI, kwargs)


_GOOGLE = "it speaks Google's Gemini API, which the endpoint does not"
_MANY = "it stands for many agents, each with its own way to be pointed: name one of those"
_VENDOR = "it talks to its vendor's own service, and takes no other address"

AGENTS: Mapping[str, Pointing | str] = {
    "acp": _MANY,
    # litellm takes the rest of the name, once Harbor has taken the first part off.
    "aider": _chat("openai/openai/{model}"),
    "antigravity-cli": _GOOGLE,
    "antigravity-sdk": _GOOGLE,
    "claude-code": Pointing(
        "messages",
        "anthropic/{model}",
        {
            **_ANTHROPIC,
            # No telemetry, updates or error reports: nothing takes them.
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # Harbor 0.25 and later would see the trainer's own, and leave the key out.
            **dict.fromkeys(("CLAUDE_CODE_USE_BEDROCK", "AWS_BEARER_TOKEN_BEDROCK"), ""),
            "CLAUDE_FORCE_OAUTH": "0",
        },
    ),
    "cline-cli": "Harbor gives it a key, but no address",
    "code-puppy": _chat(),
    "codex": Pointing(
        "responses",
        "openai/{model}",
        {**_OPENAI, "CODEX_AUTH_JSON_PATH": "", "CODEX_FORCE_AUTH_JSON": "0"},  # as above
    ),
    "computer-1": "it works by screenshots, and the endpoint takes no images",
    "copilot-cli": _VENDOR,
    "cortex-code": _VENDOR,
    "cursor-cli": _VENDOR,
    "deerflow": Pointing(
        "chat-completions",
        "openrouter/{model}",
        {"OPENROUTER_API_KEY": "{key}"},
        {"openrouter_base_url": "{url}/v1"},
    ),
    "devin": _VENDOR,
    "dspy-rlm": "it calls its model from the trainer's own process, by the trainer's own variables",
    "eve": _chat(),
    "fabric": _MANY,
    "fx": _VENDOR,
    "fx-dev": _VENDOR,
    "gemini-cli": _GOOGLE,
    "goose": Pointing("messages", "anthropic/{model}", _ANTHROPIC),
    "grok-build": Pointing(
        "responses",
        "openai/{model}",
        {"OPENAI_API_KEY": "{key}", "XAI_API_KEY": "{key}"},
        # All of it: Harbor 0.26 adds nothing to a file that names the model.
        {
            "grok_config": {
                "models": dict.fromkeys(
                    ("default", "session_summary", "image_description", "web_search"), "{model}"
                ),
                "model": {
                    "{model}": {
                        **dict.fromkeys(("name", "model"), "{model}"),
                        "base_url": "{url}/v1",
                        "api_backend": "responses",
                    }
                },
            }
        },
    ),
    "hermes": "Harbor takes its key and address from the trainer's own variables alone",
    "junie": "Harbor gives it a key, but no address",
    "kimi-cli": Pointing(
        "chat-completions", "openai/{model}", {}, {"base_url": "{url}/v1", "api_key": "{key}"}
    ),
    "kimi-code": Pointing(
        "chat-completions",
        "{model}",
        {"KIMI_MODEL_BASE_URL": "{url}/v1", "KIMI_MODEL_API_KEY": "{key}"},
    ),
    "langgraph": _chat("openai:{model}"),
    "mcode": _chat(),
    "mimo": Pointing("responses", "openai/{model}", _OPENAI),
    "mini-swe-agent": _chat(),
    "muse-code": Pointing(
        "responses",
        "meta/{model}",
        {"MUSE_CODE_BASE_URL": "{url}/v1", "META_API_KEY": "{key}"},
    ),
    "nemo-agent": _chat("{model}", llm_type="openai"),
    "openclaw": _chat(),
    "opencode": Pointing("responses", "openai/{model}", _OPENAI),
    "opencode-v2": Pointing("responses", "openai/{model}", _OPENAI),
    "openhands": Pointing("chat-completions", "openai/{model}", _LLM),
    "openhands-sdk": Pointing("chat-completions", "openai/{model}", _LLM),
    "pi": _chat(model_api="openai-completions"),
    "qwen-coder": _chat(),
    "rovodev-cli": _VENDOR,
    "strands": _chat(),
    "swe-agent": _chat(),
    "trae-agent": Pointing("responses", "openai/{model}", _OPENAI),
    "vibe": Pointing(
        "chat-completions",
        "{model}",
        {**_OPENAI, "VIBE_API_BASE": "{url}/v1"},
        {"backend": "generic"},
    ),
}
"""What Harbor's agents need, or why they can't be pointed anywhere."""


def needs_endpoint(agent: str) -> bool:
    """Whether the agent calls its model over HTTP."""
    return agent not in (*OWN_AGENTS, "untouched")


def pointing_of(agent: str) -> Pointing:
    """How the agent is pointed at an endpoint.

    Raises:
        AgentUnavailable: there is no such agent, or it can't be pointed anywhere.
    """
    if ":" in agent:
        return OWN_CLASS
    found = AGENTS.get(agent)
    if found is None:
        known = sorted(
            [*OWN_AGENTS, *(n for n, row in AGENTS.items() if isinstance(row, Pointing))]
        )
        nearest = difflib.get_close_matches(agent, known, n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]}? There are" if nearest else "there are"
        raise AgentUnavailable(
            f"agent={agent}: no such agent: {hint} {', '.join(known)}, and your own as module:Class"
        )
    if isinstance(found, str):
        raise AgentUnavailable(f"agent={agent}: {found}: choose another agent")
    return found


def check_agent(agent: str, kwargs: Mapping[str, Any]) -> None:
    """Check that the agent exists, can be pointed at an endpoint, and takes these arguments.

    Imports Harbor's class for it.

    Raises:
        AgentUnavailable: one line with the remedy.
    """
    pointing = pointing_of(agent)
    # For an agent that imports litellm, which would fetch its price list from the network.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    cls = agent_class(agent)
    known = _arguments(cls)
    if unknown := [name for name in kwargs if name not in known]:
        nearest = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f"did you mean {nearest[0]}? It takes" if nearest else "it takes"
        raise AgentUnavailable(
            f"agent_kwargs.{unknown[0]}: {agent} has no such argument:"
            f" {hint} {', '.join(sorted(known)) or 'none'}"
        )
    _, env, given = pointing.filled("http://127.0.0.1", "key", "model")
    try:
        cls.parse_options({k: v for k, v in {**given, **kwargs}.items() if k in _options(cls)}, env)
    except ValueError as problem:
        lines = str(problem).splitlines()
        said = "; ".join(line.strip() for line in lines[1:-1]) or lines[0]
        raise AgentUnavailable(f"agent_kwargs: {agent}: {said}") from None


def agent_class(agent: str) -> type[BaseAgent]:
    """Harbor's class of that name, or the class behind `module:Class`.

    Raises:
        AgentUnavailable: it can't be imported, or is no agent.
    """
    from harbor.agents.base import BaseAgent
    from harbor.agents.factory import AgentFactory
    from harbor.models.agent.name import AgentName

    if ":" not in agent:
        try:
            return AgentFactory.get_agent_class(AgentName(agent))
        except ValueError as problem:
            raise AgentUnavailable(
                f"agent={agent}: Harbor {version('harbor')} has no such agent: {_line(problem)}"
            ) from problem
    module_name, _, name = agent.partition(":")
    try:
        module = import_named(module_name)
    except ModuleNotFoundError as problem:
        raise AgentUnavailable(
            f"agent={agent}: no module {problem.name}: install it, or put the directory it is in"
            " into PYTHONPATH"
        ) from problem
    except Exception as problem:
        raise AgentUnavailable(
            f"agent={agent}: importing {module_name} fails: {type(problem).__name__}:"
            f" {_line(problem)}"
        ) from problem
    classes = [
        key
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, BaseAgent)
        and not inspect.isabstract(value)
    ]
    found = vars(module).get(name)
    if found is None:
        nearest = difflib.get_close_matches(name, classes, n=1) or classes[:1]
        hint = f": did you mean {nearest[0]}?" if nearest else ": it has no agent at all"
        raise AgentUnavailable(f"agent={agent}: {module_name} has no {name}{hint}")
    if not isinstance(found, type) or not issubclass(found, BaseAgent):
        raise AgentUnavailable(
            f"agent={agent}: {name} is no agent: derive it from harbor.agents.base.BaseAgent"
        )
    if inspect.isabstract(found):
        lacking = ", ".join(sorted(found.__abstractmethods__))
        raise AgentUnavailable(f"agent={agent}: {name} is not complete: write its {lacking}")
    return found


# What the trial itself gives to the constructor.
_GIVEN = frozenset(
    [
        *("self", "logs_dir", "logger", "extra_env", "args", "kwargs", "mcp_servers"),
        *("skills_dir", "load_trajectory", "environment_logs_dir"),
    ]
)


def _arguments(cls: type[BaseAgent]) -> frozenset[str]:
    """The names that the class takes. Harbor ignores others in silence."""
    known = set(_options(cls))
    for base in cls.__mro__:
        if (constructor := base.__dict__.get("__init__")) is not None:
            parameters = inspect.signature(constructor).parameters.values()
            known |= {
                p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
            }
    flags = [*getattr(cls, "CLI_FLAGS", ()), *getattr(cls, "ENV_VARS", ())]
    return frozenset(known | {flag.kwarg for flag in flags}) - _GIVEN


def _options(cls: type[BaseAgent]) -> frozenset[str]:
    return (
        frozenset(cls.options_model.model_fields) if cls.options_model is not None else frozenset()
    )


def _line(problem: BaseException) -> str:
    return " ".join(str(problem).split()).rstrip(".")
