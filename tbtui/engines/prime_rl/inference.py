"""Holding and releasing vLLM servers: `/pause`, `/resume` and `/is_paused`.

vLLM has the three where it was started with `VLLM_SERVER_DEV_MODE=1`; Prime-RL's own server has
the first two always. Prime-RL itself pauses and resumes its servers around every update of whole
weights, so that such an update ends a pause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    import httpx

_CONNECT_SEC = 5.0
_ANSWER_SEC = 60.0
"""vLLM answers `/pause` when what it is computing has come to a stop."""


class InferenceError(Exception):
    """A server can't be held or released; the message is one line for a person."""


class InferenceServers:
    """The vLLM engines of a run, paused and resumed together."""

    def __init__(self, urls: Sequence[str]) -> None:
        """`urls`: with or without a path; none: nothing is ever asked."""
        self.urls = tuple(_root(url) for url in urls)

    async def pause(self) -> bool:
        """Hold all servers; their requests wait (`mode=keep`). Returns whether each has confirmed
        that it is paused; some servers have no way to say so.

        Raises:
            InferenceError: one can't be paused; the others go on again.
        """
        async with _client() as client:
            paused: list[str] = []
            try:
                for url in self.urls:
                    params = {"mode": "keep", "clear_cache": "false"}
                    await _ask(client, "POST", f"{url}/pause", params)
                    paused.append(url)
                return all([await self._is_held(client, url) for url in paused])
            except InferenceError:
                for url in paused:
                    await _ask(client, "POST", f"{url}/resume")
                raise

    async def resume(self) -> None:
        """Let all servers go on.

        Raises:
            InferenceError: a server can't be asked, or says that it is still paused.
        """
        async with _client() as client:
            for url in self.urls:
                await _ask(client, "POST", f"{url}/resume")
            for url in self.urls:
                if await self._is_paused(client, url) is True:
                    raise InferenceError(f"{url} still says that it is paused")

    async def _is_held(self, client: httpx.AsyncClient, url: str) -> bool:
        paused = await self._is_paused(client, url)
        if paused is False:
            raise InferenceError(f"{url} took /pause and says that it isn't paused")
        return paused is True

    async def _is_paused(self, client: httpx.AsyncClient, url: str) -> bool | None:
        """Whether the server says that it is paused; None: it has no such request."""
        try:
            answer = await _ask(client, "GET", f"{url}/is_paused")
        except _MissingError:
            return None
        try:
            return bool(answer.json()["is_paused"])
        except (ValueError, LookupError, TypeError) as error:
            raise InferenceError(f"{url}/is_paused: no such answer as vLLM's") from error


class _MissingError(InferenceError):
    """The server doesn't know the path."""


def _client() -> httpx.AsyncClient:
    import httpx

    return httpx.AsyncClient(timeout=httpx.Timeout(_ANSWER_SEC, connect=_CONNECT_SEC))


async def _ask(
    client: httpx.AsyncClient, method: str, url: str, params: dict[str, str] | None = None
) -> httpx.Response:
    import httpx

    try:
        answer = await client.request(method, url, params=params)
    except httpx.HTTPError as error:
        raise InferenceError(f"{url}: {str(error) or type(error).__name__}") from error
    if answer.status_code in (404, 405):
        raise _MissingError(
            f"{url}: the server has no such request; start vLLM with VLLM_SERVER_DEV_MODE=1"
        )
    if answer.status_code != httpx.codes.OK:
        words = " ".join(answer.text.split())[:200]
        raise InferenceError(f"{url}: HTTP {answer.status_code} {words}".rstrip())
    return answer


def _root(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return urlunsplit((parts.scheme, parts.netloc, "", "", ""))
