"""HTTP to a vLLM server: one client, its refusals as a line for a person and as a class that says
what can be done, and what the server says that it serves: asked for before the first trial."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbtui.policies.base import (
    ChatRenderer,
    ContextOverflowError,
    Message,
    PolicyError,
    PolicyRefusedError,
)
from tbtui.policies.meter import RequestMeter
from tbtui.policies.work import offer
from tbtui.terminal import one_line, reason

if TYPE_CHECKING:
    import httpx

DEFAULT_URL = "http://localhost:8000"
"""Where a vLLM server listens by default."""
_CONNECT_SEC = 10.0
_QUESTION_SEC = 30.0
_WAITS_SEC = (0.25, 1.0, 3.0)
"""Before each further attempt when a connection fails: sampling is by seed, so that a request may
be sent again. What lasts longer is for the trials' own retries."""
# uvicorn, which vLLM runs on, drops an idle connection after five seconds: not to be used by us
# in that very moment.
_IDLE_SEC = 3.0

_LONGEST_QUOTE = 300
# It has said so in several ways over time.
_TOO_LONG = re.compile(
    r"maximum (?:context|model) length|longer than the maximum|max_model_len|input is too long",
    re.IGNORECASE,
)

PROBE = (Message("user", "List the files of /tmp, please."),)
"""A conversation to try a server with."""


class Connection:
    """HTTP to one server. What fails is a `PolicyError`; every method names what is `doing`."""

    def __init__(
        self,
        base_url: str | None,
        meter: RequestMeter,
        key: str | None = None,
        *,
        setting: str = "vllm_base_url",
        default_url: str = DEFAULT_URL,
    ) -> None:
        """
        Args:
            base_url: None: `OPENAI_BASE_URL`, else `default_url`.
            meter: gets the connection's state, and requests sent again.
            key: that the server wants; None: `OPENAI_API_KEY`, if there is one.
            setting: what a person sets the address with.

        Raises:
            PolicyRefusedError: it is no address, or `OPENAI_API_KEY` no key.
        """
        import httpx

        url = (base_url or os.environ.get("OPENAI_BASE_URL") or default_url).rstrip("/")
        given = url.removesuffix("/v1")
        # Without credentials, which httpx would write into its log.
        self._root = self.address = re.sub(r"//[^/]*@", "//", given)
        """The server's, without credentials."""
        try:
            parts = httpx.URL(given)
        except httpx.InvalidURL:
            parts = httpx.URL()
        bare = parts.path.strip("/") == ""
        self.api_path = "/v1" if bare or url.endswith("/v1") else ""
        """Where its API begins: the usual `/v1` may be written or not, any other is its own."""
        if parts.scheme not in ("http", "https") or not parts.host:
            raise PolicyRefusedError(
                f"{setting}={self.address}: no address of a server; write it like {DEFAULT_URL}/v1"
            )
        self._setting = setting
        self._meter = meter
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else _authorization(),
            auth=httpx.BasicAuth(parts.username, parts.password) if parts.userinfo else None,
            timeout=httpx.Timeout(_QUESTION_SEC, connect=_CONNECT_SEC, pool=None),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=_IDLE_SEC),
        )

    async def get(self, path: str, doing: str) -> Any:
        """Content of a JSON answer."""
        return _content(await self._ask("GET", path, doing), doing)

    async def post(
        self, path: str, body: Mapping[str, Any], doing: str, *, patient: bool = False
    ) -> Any:
        """Content of the JSON answer. `patient`: the caller limits how long it may take."""
        return _content(await self._ask("POST", path, doing, body, patient=patient), doing)

    async def order(self, path: str, body: Mapping[str, Any], doing: str) -> None:
        """Have something done that is answered in words, or not at all. May take long."""
        await self._ask("POST", path, doing, body, patient=True, again=False)

    async def text(self, path: str, doing: str) -> str:
        """Content of an answer; asked for once."""
        return (await self._ask("GET", path, doing, again=False)).text

    async def close(self) -> None:
        await self._client.aclose()

    async def _ask(
        self,
        method: str,
        path: str,
        doing: str,
        body: Mapping[str, Any] | None = None,
        *,
        patient: bool = False,
        again: bool = True,
    ) -> httpx.Response:
        import httpx

        timeout = httpx.Timeout(None, connect=_CONNECT_SEC) if patient else self._client.timeout
        left = iter(_WAITS_SEC if again else ())
        while True:
            try:
                response = await self._client.request(
                    method, self._root + path, json=body, timeout=timeout
                )
            except httpx.ReadTimeout as error:
                raise PolicyError(
                    f"{doing}: the server at {self.address} didn't answer in {_QUESTION_SEC:g} s"
                ) from error
            except httpx.TransportError as error:
                why = reason(error)
                self._meter.state("unreachable", why, "connection")
                wait = next(left, None)
                if wait is None:
                    raise PolicyError(
                        f"{doing}: no answer from {self.address} ({why}); is the server up, and"
                        f" {self._setting} right?"
                    ) from error
                self._meter.retried()
                await asyncio.sleep(wait)
            else:
                self._meter.state("active", source="connection")
                if response.status_code != httpx.codes.OK:
                    raise status_error(response.status_code, response.text, doing, self._setting)
                return response


def _authorization() -> dict[str, str]:
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):
        raise PolicyRefusedError("OPENAI_API_KEY: that is no key; it has characters that none has")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _content(response: httpx.Response, doing: str) -> Any:
    try:
        return response.json()
    except ValueError as error:
        raise PolicyError(
            f"{doing}: the answer is no JSON ({one_line(response.text, 80)}); is that a server of"
            " models?"
        ) from error


def status_error(status: int, body: str, doing: str, setting: str = "vllm_base_url") -> PolicyError:
    """What an HTTP status other than 200 means.

    Args:
        body: of the answer.
        doing: what was being done, to begin the line with.
        setting: of the server's address.
    """
    words = one_line(_words(body), _LONGEST_QUOTE)
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
                f"{doing}: the server doesn't have that ({quote}); check {setting} and model_name"
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


@dataclass(frozen=True, slots=True)
class ServedModel:
    name: str
    context_limit: int | None
    """Tokens, prompt and completion together; None where the server doesn't say."""
    origin: str
    """Directory at the server, or name on the Hugging Face hub, that the model came from; an
    adapter's is that of the model below it."""


async def served_model(connection: Connection, name: str) -> ServedModel:
    """The model that the server calls `name`.

    Raises:
        PolicyError: it has none, or can't be asked.
    """
    doing = f"asking {connection.address} for its models"
    content = await connection.get("/v1/models", doing)
    try:
        cards: dict[str, dict[str, Any]] = {card["id"]: card for card in content["data"]}
    except (KeyError, TypeError) as error:
        raise PolicyError(f"{doing}: the answer can't be read; is that a vLLM server?") from error
    if name not in cards:
        raise PolicyRefusedError(
            f"model_name={name}: the server has no such model; {offer(name, cards)}"
        )
    card = cards[name]
    base = cards.get(card.get("parent") or "", card)
    return ServedModel(
        name,
        card.get("max_model_len") or base.get("max_model_len"),
        base.get("root") or base["id"],
    )


def tokenizer_of(model: ServedModel) -> str:
    """Where to find the model's tokenizer, unless it is named.

    Raises:
        PolicyError: it is in a directory at the server.
    """
    if model.origin.startswith("/") and not Path(model.origin).is_dir():
        raise PolicyRefusedError(
            f"tokenizer: the server has {model.name} from {model.origin}, which is not on this"
            " machine; give tokenizer=DIRECTORY or a name on the Hugging Face hub"
        )
    return model.origin


async def tokenizer_notes(
    connection: Connection, model: ServedModel, renderer: ChatRenderer
) -> tuple[str, ...]:
    """What a person should know of how the server's tokenizer and ours differ. Nothing where the
    server has no `/tokenize`."""
    ids = renderer.render(PROBE)
    text = "".join(renderer.pieces(ids))
    body = {"model": model.name, "prompt": text, "add_special_tokens": False}
    try:
        content = await connection.post("/tokenize", body, "comparing tokenizers")
    except PolicyRefusedError:
        return ()
    theirs = content.get("tokens") if isinstance(content, dict) else None
    if theirs is None or tuple(theirs) == ids:
        return ()
    return (
        f"the server's tokenizer makes other tokens of a chat than ours ({len(theirs)} and"
        f" {len(ids)} of the same text): check tokenizer and renderer",
    )
