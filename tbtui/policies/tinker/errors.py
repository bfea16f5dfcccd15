"""Turns what the Tinker SDK raises into one line for a person, of a class that says what helps.

Three outcomes. `PolicyLostError`: what was being trained is gone or in doubt, and a policy made
afresh from the last checkpoint goes on. `PolicyError` of a training request: doing it again can't
help, a person must act. `PolicyError` of a sampling request or a question: it concerns that
request alone.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from tbtui.policies.base import (
    PolicyDeniedError,
    PolicyError,
    PolicyLostError,
    PolicyRefusedError,
)
from tbtui.policies.work import CREDENTIAL
from tbtui.terminal import both_ends, one_line

THE_SERVER = "the Tinker server"

GATEWAY_STATUSES = frozenset({502, 503, 504, *range(520, 531)})
"""What a proxy answers for a server that it can't reach."""
_LONGEST_QUOTE = 300

_SDK_DRESSING = re.compile(r"^Request failed: (?P<words>.*?) for self\.request_id=.*$", re.DOTALL)

# A server names a request's fields; a person knows them as settings.
_SETTINGS: tuple[tuple[str, str], ...] = (
    (r"base[_ ]model|model[_ ]name|unknown model|unsupported model", "model_name"),
    (r"\brank\b|lora", "lora_rank"),
    (r"ttl", "checkpoint_ttl_hours"),
    (r"loss[_ ]?f(?:unctio)?n", "loss_fn"),
    (r"temperature", "temperature"),
    (r"grad[_ ]clip", "grad_clip"),
    (r"weight[_ ]decay", "weight_decay"),
    (r"learning[_ ]rate", "learning_rate"),
    (r"max[_ ]tokens", "max_tokens"),
    (r"context|too long|too many tokens", "context_limit"),
)


def policy_error(
    error: Exception, doing: str, *, training: bool = True, server: str = THE_SERVER
) -> PolicyError:
    """`error` as the policy's own.

    Args:
        error: what the SDK raised; a `PolicyError` is returned as it is.
        doing: what was being done, to begin the line with: "the optimiser step".
        training: whether what is being trained depends on it. Without, there is nothing to lose
            and the result is never a `PolicyLostError`.
        server: what the server is called.
    """
    import tinker

    if isinstance(error, PolicyError):
        return error
    status = _status_error(error)
    if status is not None:
        return _of_status(status, doing, training, server)
    match error:
        case tinker.RequestFailedError():
            return _of_failed_request(error, doing, training, server)
        case tinker.APITimeoutError() | tinker.APIConnectionError():
            text = f"{doing}: no connection to {server} ({_words(error)})"
            return PolicyLostError(text) if training else PolicyError(f"{text}; is it up?")
        case tinker.APIResponseValidationError():
            return PolicyError(_not_understood(doing, error))
        case ValueError() if "deserializ" in str(error) or "JSON payload" in str(error):
            return PolicyError(_not_understood(doing, error))
        case RuntimeError() if "poisoned" in str(error):
            text = f"{doing}: an earlier request failed, and with it what was being trained"
            return PolicyLostError(text) if training else PolicyError(text)
        case RuntimeError() if "is closed" in str(error):
            return PolicyError(f"{doing}: the policy has been closed")
        case tinker.TinkerError() if "api_key client option must be set" in str(error):
            return PolicyRefusedError(
                f"{doing}: there is no API key; set TINKER_API_KEY=tml-... in the environment or"
                " in .env"
            )
        case tinker.TinkerError() if "api_key" in str(error) or "CREDENTIAL" in str(error):
            return PolicyRefusedError(
                f"{doing}: the Tinker API key can't be used ({_words(error)}); set"
                " TINKER_API_KEY=tml-... in the environment or in .env"
            )
    # What else comes while an answer is awaited says that it won't come: a promise that has
    # expired, a time limit, an answer that can't be read.
    kind = "no answer in time" if isinstance(error, TimeoutError) else _words(error)
    text = f"{doing}: no answer came from {server} ({kind})"
    return PolicyLostError(text) if training else PolicyError(text)


@contextlib.contextmanager
def sdk_errors(doing: str, *, training: bool = True) -> Iterator[None]:
    """Raises what a call of the SDK, and nothing else, fails with as `policy_error` has it."""
    try:
        yield
    except Exception as error:
        raise policy_error(error, doing, training=training) from error


def status_code(error: BaseException) -> int | None:
    """HTTP status that an error of the SDK goes back to, where it does."""
    status = _status_error(error)
    return None if status is None else status[0]


def without_key(text: str) -> str:
    """`text` on one line, not too long, with anything that looks like a credential left out."""
    return both_ends(one_line(CREDENTIAL.sub("[key]", text)), _LONGEST_QUOTE)


def _of_status(status: tuple[int, str], doing: str, training: bool, server: str) -> PolicyError:
    code, words = status
    quote = f"{code}: {words}" if words else str(code)
    match code:
        case 401:
            return PolicyDeniedError(
                f"{doing}: {server} doesn't accept the API key ({quote}); check"
                " TINKER_API_KEY in the environment or in .env"
            )
        case 402:
            # It passes once the account is settled, and the SDK has waited for that already.
            return PolicyError(
                f"{doing}: the account behind the API key has a billing problem ({quote}); settle"
                " it in the Tinker console, then resume the run"
            )
        case 403:
            return PolicyDeniedError(
                f"{doing}: the API key has no right to this ({quote}); use a key, or a"
                " TINKER_PROJECT_ID, that has it"
            )
        case 404 | 410:
            if not training:
                return PolicyRefusedError(f"{doing}: the Tinker server doesn't have that ({quote})")
            return PolicyLostError(
                f"{doing}: the Tinker server no longer has what was being trained ({quote}): it"
                " was deleted, or its session has ended"
            )
        case 408 | 409 | 429:
            what = {
                408: "took too long",
                409: "is in a state that doesn't fit the request",
                429: "has too much to do",
            }[code]
            text = f"{doing}: {server} {what} ({quote})"
            return PolicyLostError(text) if training else PolicyError(f"{text}; try again later")
        case _ if code >= 500:
            what = "isn't reached" if code in GATEWAY_STATUSES else "failed"
            text = f"{doing}: {server} {what} ({quote})"
            return PolicyLostError(text) if training else PolicyError(f"{text}; try again later")
        case _ if training and "not loaded" in words:
            # SkyRL's server after a restart, or without heartbeats for long.
            return PolicyLostError(
                f"{doing}: the Tinker server no longer has what was being trained ({quote})"
            )
        case _:
            return PolicyRefusedError(_refused(doing, quote))


def _of_failed_request(error: Exception, doing: str, training: bool, server: str) -> PolicyError:
    import tinker
    from tinker.types import RequestErrorCategory

    assert isinstance(error, tinker.RequestFailedError)
    dressed = _SDK_DRESSING.match(error.message)
    words = without_key(dressed["words"] if dressed else error.message)
    if error.category is RequestErrorCategory.User:
        return PolicyRefusedError(_refused(doing, words))
    text = f"{doing}: {server} failed ({words})"
    return PolicyLostError(text) if training else PolicyError(text)


def _refused(doing: str, quote: str) -> str:
    for pattern, setting in _SETTINGS:
        if re.search(pattern, quote, re.IGNORECASE):
            return f"{doing}: the Tinker server refuses it ({quote}); change {setting}"
    return f"{doing}: the Tinker server refuses it ({quote}); change the setting it names"


def _not_understood(doing: str, error: Exception) -> str:
    import tinker

    return (
        f"{doing}: the Tinker server's answer can't be read by tinker {tinker.__version__}"
        f" ({_words(error)}); use a server and a tinker version that fit together"
    )


def _status_error(error: BaseException) -> tuple[int, str] | None:
    """Status code and the server's words of the HTTP error behind `error`: while it polls for an
    answer, the SDK wraps the one that it gives up on."""
    import tinker

    for cause in _causes(error):
        if isinstance(cause, tinker.APIStatusError):
            return cause.status_code, server_words(cause)
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error` and what it came from. What it came about while handling counts too: an account
    that doesn't pay makes the SDK trip over itself while it connects."""
    current: BaseException | None = error
    while current is not None:
        yield current
        context = None if current.__suppress_context__ else current.__context__
        current = current.__cause__ or context


def server_words(error: Exception) -> str:
    """What the body of an HTTP error says: `detail`, `message` or `error`, or the body itself."""
    import tinker

    assert isinstance(error, tinker.APIStatusError)
    body = error.body
    if isinstance(body, dict):
        for name in ("detail", "message", "error"):
            if name in body:
                return without_key(_detail(body[name]))
    return without_key(str(body)) if body else ""


def _detail(detail: object) -> str:
    """FastAPI's `detail`: words, or a list of what is wrong with which field."""
    if isinstance(detail, list):
        return ", ".join(_detail(part) for part in detail)
    if isinstance(detail, dict):
        where = detail.get("loc")
        words = str(detail.get("msg") or detail.get("message") or detail)
        if isinstance(where, list | tuple):
            return ".".join(str(part) for part in where if part != "body") + ": " + words
        return words
    return str(detail)


def _words(error: Exception) -> str:
    return without_key(str(error)) or type(error).__name__
