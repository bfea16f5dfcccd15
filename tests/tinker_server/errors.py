"""How a request can end other than well."""

from __future__ import annotations

from typing import Literal

Category = Literal["unknown", "server", "user"]


class HttpError(Exception):
    """Answer this request with `status`."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class WorkFailed(Exception):
    """The work behind a future failed; retrieving it answers with this error."""

    def __init__(self, message: str, category: Category = "server") -> None:
        super().__init__(message)
        self.category = category
