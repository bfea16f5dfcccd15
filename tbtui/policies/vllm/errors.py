"""A vLLM server's refusals, as one line for a person and as a class that says what can be done."""

from __future__ import annotations

import json
import re
from typing import Any

from tbtui.policies.base import ContextOverflowError, PolicyError, PolicyRefusedError

_LONGEST_QUOTE = 300
# It has said so in several ways over time.
_TOO_LONG = re.compile(
    r"maximum (?:context|model) length|longer than the maximum|max_model_len|input is too long",
    re.IGNORECASE,
)


def status_error(status: int, body: str, doing: str) -> PolicyError:
    """What an HTTP status other than 200 means.

    Args:
        body: of the answer.
        doing: what was being done, to begin the line with.
    """
    words = one_line(_words(body))
    quote = f"{status}: {words}" if words else str(status)
    match status:
        case 401 | 403:
            return PolicyRefusedError(
                f"{doing}: the server doesn't accept the API key ({quote}); set OPENAI_API_KEY, in"
                " the environment or in .env, to the one that it was started with"
            )
        case 400 | 413 | 422 if _TOO_LONG.search(words):
            return ContextOverflowError(f"{doing}: there is no room for the prompt ({quote})")
        case 404 | 405:
            return PolicyRefusedError(
                f"{doing}: the server doesn't have that ({quote}); check vllm_base_url and"
                " model_name"
            )
        case 408 | 409 | 425 | 429:
            return PolicyError(
                f"{doing}: the server has too much to do ({quote}); try again later, or with a"
                " smaller n_parallel_envs"
            )
        case _ if status >= 500:
            return PolicyError(f"{doing}: the server failed ({quote}); its log says more")
        case _:
            return PolicyRefusedError(f"{doing}: the server refuses it ({quote})")


def one_line(text: str) -> str:
    """`text` on one line, not too long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_QUOTE else line[: _LONGEST_QUOTE - 1] + "…"


def _words(body: str) -> str:
    """What the body of an error says: vLLM's `error`, FastAPI's `detail`, or the body itself."""
    try:
        content: Any = json.loads(body)
    except ValueError:
        return body
    for name in ("error", "detail", "message", "msg"):
        while isinstance(content, dict) and name in content:
            content = content[name]
    return content if isinstance(content, str) else json.dumps(content)
