"""HTTP to a vLLM server: one client, its refusals as a line for a person and as a class that says
what can be done, and what the server says that it serves: asked for before the first trial."""

from __future__ import annotations

import asyncio
import email.utils
import json
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbtui.http_response import ENCODINGS, ResponseError, limited_body
from tbtui.policies.base import (
    ChatRenderer,
    ContextOverflowError,
    Message,
    PolicyBusyError,
    PolicyDeniedError,
    PolicyError,
    PolicyRefusedError,
    PolicyWithheldError,
)
from tbtui.policies.meter import RequestMeter
from tbtui.policies.work import offer
from tbtui.terminal import both_ends, one_line, reason

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
_MOST_BYTES = 64 << 20
"""Bytes of an answer, unpacked: a long completion with its log-probabilities has less."""
_MOST_LINE_BYTES = 8 << 20
"""Bytes of a line of a stream, which is one event."""
_PATIENT_WAITS_SEC = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Before a server that is busy when a run starts is asked again, where it says nothing else."""
_LONGEST_WAIT_SEC = 120.0
"""A server that asks for a longer wait than this is given up at the start."""
_BUSY = frozenset({408, 409, 425, 429, 503, 529})
_FILTERS = frozenset(
    {"content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii"}
    | {"sensitive", "refusal", "language"}
)
"""Finish reasons, in lower case, of what filters hold back; those but the first are Gemini's and
Zhipu's, which servers in between pass on."""
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
        authorization = {"Authorization": f"Bearer {key}"} if key else _authorization()
        self._client = httpx.AsyncClient(
            headers={**ENCODINGS, **authorization},
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

    async def streamed(
        self, path: str, body: Mapping[str, Any], doing: str, heard: Callable[[], None]
    ) -> list[Any]:
        """The events of a server-sent stream, or the one content of an answer that is none.

        Args:
            heard: called as each event comes: the server is at work.
        """
        import httpx

        left = iter(_WAITS_SEC)
        while True:
            try:
                async with self._client.stream(
                    "POST",
                    self._root + path,
                    json=body,
                    timeout=httpx.Timeout(None, connect=_CONNECT_SEC),
                ) as response:
                    kind = response.headers.get("content-type", "")
                    if response.status_code != 200 or "text/event-stream" not in kind.lower():
                        return [_content(await self._answered(response, doing), doing)]
                    self._meter.state("active", source="connection")
                    events = _events(response, heard)
                    return [_event(data, doing) async for data in events]
            except (httpx.DecodingError, ResponseError) as error:
                raise PolicyError(
                    f"{doing}: the server's answer can't be read ({reason(error)})"
                ) from error
            except httpx.TransportError as error:
                await self._wait_after(error, left, doing)

    async def order(self, path: str, body: Mapping[str, Any], doing: str) -> None:
        """Have something done that is answered in words, or not at all. May take long."""
        await self._ask("POST", path, doing, body, patient=True, again=False)

    async def text(self, path: str, doing: str) -> str:
        """Content of an answer; asked for once."""
        return (await self._ask("GET", path, doing, again=False)).decode(errors="replace")

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
    ) -> bytes:
        import httpx

        timeout = httpx.Timeout(None, connect=_CONNECT_SEC) if patient else self._client.timeout
        left = iter(_WAITS_SEC if again else ())
        while True:
            try:
                async with (
                    # As a whole, too: a server may say a byte now and then for ever.
                    asyncio.timeout(None if patient else _QUESTION_SEC),
                    self._client.stream(
                        method, self._root + path, json=body, timeout=timeout
                    ) as response,
                ):
                    return await self._answered(response, doing)
            except (httpx.DecodingError, ResponseError) as error:
                raise PolicyError(
                    f"{doing}: the server's answer can't be read ({reason(error)})"
                ) from error
            except (TimeoutError, httpx.ReadTimeout) as error:
                raise PolicyError(
                    f"{doing}: the server at {self.address} didn't answer in {_QUESTION_SEC:g} s"
                ) from error
            except httpx.TransportError as error:
                await self._wait_after(error, left, doing)

    async def _answered(self, response: httpx.Response, doing: str) -> bytes:
        """Read an answer. Raises `PolicyError` for a status that is none of success."""
        body = bytearray()
        async for part in limited_body(response, _MOST_BYTES):
            body += part
        self._meter.state("active", source="connection")
        if response.status_code != 200:
            raise status_error(
                response.status_code,
                body.decode(errors="replace"),
                doing,
                self._setting,
                _retry_after(response.headers.get("retry-after", "")),
            )
        return bytes(body)

    async def _wait_after(
        self, error: httpx.TransportError, left: Iterator[float], doing: str
    ) -> None:
        """Wait before a request is sent again whose connection failed.

        Raises:
            PolicyError: no wait is left.
        """
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


async def _events(response: httpx.Response, heard: Callable[[], None]) -> AsyncIterator[str]:
    """What the `data` of each server-sent event says, up to OpenAI's closing `[DONE]`."""
    async for line in _lines(response):
        name, _, value = line.partition(":")
        if name != "data":
            continue  # an empty line, a comment that keeps the connection alive, another field
        heard()
        if value.strip() == "[DONE]":
            return
        yield value


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    rest = b""
    async for part in limited_body(response, _MOST_BYTES):
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > _MOST_LINE_BYTES:
            raise ResponseError(f"an event of it has more than {_MOST_LINE_BYTES >> 20} MiB")
        for line in lines:
            yield line.rstrip(b"\r").decode(errors="replace")
    yield rest.decode(errors="replace")


def _event(data: str, doing: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PolicyError(
            f"{doing}: an event of the answer is no JSON ({one_line(data, 80)})"
        ) from error


def _retry_after(text: str) -> float:
    """Seconds that the header asks for: a number of them, or a date. 0: it is neither."""
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (OSError, OverflowError, ValueError):  # of dates that no calendar has
        return 0.0


async def when_it_has_time[T](ask: Callable[[], Awaitable[T]], tell: Callable[[str], object]) -> T:
    """What a server says that is busy when a run starts: it is asked again for some time.

    Args:
        tell: gets what is waited for, one line.

    Raises:
        PolicyBusyError: it still is, or asks for a wait of minutes.
    """
    for wait in _PATIENT_WAITS_SEC:
        try:
            return await ask()
        except PolicyBusyError as error:
            wait = max(wait, error.retry_after_sec)
            if wait > _LONGEST_WAIT_SEC:
                raise
            tell(f"{error}; asking again in {wait:.0f} s")
            await asyncio.sleep(wait)
    return await ask()


def _authorization() -> dict[str, str]:
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):
        raise PolicyRefusedError("OPENAI_API_KEY: that is no key; it has characters that none has")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _content(body: bytes, doing: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        words = one_line(body[:1000].decode(errors="replace"), 80)
        raise PolicyError(
            f"{doing}: the answer is no JSON ({words}); is that a server of models?"
        ) from error


def status_error(
    status: int,
    body: str,
    doing: str,
    setting: str = "vllm_base_url",
    retry_after_sec: float = 0.0,
) -> PolicyError:
    """What an HTTP status other than 200 means.

    Args:
        body: of the answer.
        doing: what was being done, to begin the line with.
        setting: of the server's address.
    """
    words = both_ends(one_line(_words(body)), _LONGEST_QUOTE)
    quote = f"{status}: {words}" if words else str(status)
    match status:
        case 401:
            return PolicyDeniedError(
                f"{doing}: the server doesn't accept the API key ({quote}); set OPENAI_API_KEY, in"
                " the environment or in .env, to the one that it was started with"
            )
        case 402:
            return PolicyError(
                f"{doing}: the account behind the API key can't pay for it ({quote}); settle that"
                " with the provider"
            )
        case 403:
            return PolicyRefusedError(
                f"{doing}: the server refuses it ({quote}); OPENAI_API_KEY may have no right to"
                " this model, or a filter holds the prompt back"
            )
        case 400 | 413 | 422 if _TOO_LONG.search(words):
            return ContextOverflowError(f"{doing}: there is no room for the prompt ({quote})")
        case 404 | 405:
            return PolicyRefusedError(
                f"{doing}: the server doesn't have that ({quote}); check {setting} and model_name"
            )
        case _ if status in _BUSY:
            return PolicyBusyError(
                f"{doing}: the server has too much to do ({quote}); try again later, or with a"
                " smaller n_parallel_envs",
                retry_after_sec,
            )
        case _ if status >= 500:
            return PolicyError(f"{doing}: the server failed ({quote}); its log says more")
        case _:
            return PolicyRefusedError(f"{doing}: the server refuses it ({quote})")


def _words(body: str) -> str:
    """What the body of an error says: vLLM's `error`, FastAPI's `detail`, or the body itself."""
    try:
        content: Any = json.loads(body)
    except (ValueError, RecursionError):
        return body
    for name in ("error", "detail", "message", "msg"):
        while isinstance(content, dict) and name in content:
            content = content[name]
    return content if isinstance(content, str) else body


def only_choice(content: Any, doing: str) -> dict[str, Any]:
    """The one choice of a completion, whole.

    Raises:
        PolicyWithheldError: there is none, or a filter has held it back.
        PolicyError: the server has answered with an error, gave the completion up, or with what
            can't be read.
    """
    try:
        _raise_reported(content, doing)
        choices = content["choices"]
        if not choices:
            raise PolicyWithheldError(
                f"{doing}: the server gives no completion of this prompt ({_withheld(content)})"
            )
        (choice,) = choices
        _raise_reported(choice, doing)
        finish = choice["finish_reason"]
        if not isinstance(finish, str | None):
            raise TypeError("finish_reason")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PolicyError(f"{doing}: the server's answer can't be read ({error!r})") from error
    why = one_line(str(finish), 40)
    if why.lower() in _FILTERS:
        raise PolicyWithheldError(f"{doing}: the server withholds the completion ({why})")
    if finish not in ("stop", "length", "tool_calls"):
        raise PolicyError(f"{doing}: the server gave the completion up ({why})")
    assert isinstance(choice, dict)
    return choice


def _raise_reported(content: Any, doing: str) -> None:
    """Raise the error that some servers report with the status of success."""
    reported = content.get("error")
    if not reported:
        return
    code = reported.get("code") if isinstance(reported, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    raise status_error(status, json.dumps({"error": reported}), doing)


def _withheld(content: Mapping[str, Any]) -> str:
    """Why there is no choice, by what else the answer says."""
    said = {
        name: value
        for name, value in content.items()
        if value and ("filter" in name or "feedback" in name.lower())
    }
    return both_ends(json.dumps(said), _LONGEST_QUOTE) if said else "choices is empty"


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
        cards: dict[str, dict[str, Any]] = {str(card["id"]): card for card in content["data"]}
    except (KeyError, TypeError) as error:
        raise PolicyError(f"{doing}: the answer can't be read; is that a vLLM server?") from error
    if name not in cards:
        raise PolicyRefusedError(
            f"model_name={name}: the server has no such model; {offer(name, cards)}"
        )
    card = cards[name]
    base = cards.get(str(card.get("parent") or ""), card)
    limit = card.get("max_model_len") or base.get("max_model_len")
    return ServedModel(
        name,
        limit if isinstance(limit, int) and limit > 0 else None,
        str(base.get("root") or base["id"]),
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
    if not isinstance(theirs, list) or tuple(theirs) == ids:
        return ()
    return (
        f"the server's tokenizer makes other tokens of a chat than ours ({len(theirs)} and"
        f" {len(ids)} of the same text): check tokenizer and renderer",
    )
