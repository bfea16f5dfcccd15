"""Errors as OpenAI's APIs have them."""

from __future__ import annotations

from typing import Any

from tbtui.endpoint.calls import CallRefused, RefusalKind
from tbtui.endpoint.wire import to_json

_KINDS: dict[RefusalKind, tuple[int, str, str | None]] = {
    "unauthorized": (401, "invalid_request_error", "invalid_api_key"),
    "not_found": (404, "invalid_request_error", "unknown_url"),
    "invalid_request": (400, "invalid_request_error", None),
    "unsupported": (400, "invalid_request_error", "unsupported_value"),
    "context_overflow": (400, "invalid_request_error", "context_length_exceeded"),
    "rate_limit": (429, "requests", "rate_limit_exceeded"),
    "gone": (403, "permission_error", "trial_ended"),
    "overloaded": (503, "server_error", "server_overloaded"),
    "provider": (500, "server_error", "server_error"),
}
"""Kind -> HTTP status, type and code."""


def error_object(refusal: CallRefused) -> dict[str, Any]:
    """The object under `error`."""
    _, kind, code = _KINDS[refusal.kind]
    message = refusal.message
    if refusal.kind == "context_overflow" and refusal.context_limit:
        # The words that agents and client libraries look for.
        message = (
            f"This model's maximum context length is {refusal.context_limit} tokens. However, your"
            f" messages resulted in {refusal.prompt_tokens} tokens. Please reduce the length of the"
            " messages."
        )
    return {"message": message, "type": kind, "param": refusal.parameter, "code": code}


def error_response(refusal: CallRefused) -> tuple[int, bytes]:
    """HTTP status and body."""
    return _KINDS[refusal.kind][0], to_json({"error": error_object(refusal)})
