"""What a vLLM server says that it serves: asked for at the start, before the first trial."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbtui.policies.base import ChatRenderer, Message, PolicyError, PolicyRefusedError
from tbtui.policies.vllm.connection import Connection

_MODELS_NAMED = 5
PROBE = (Message("user", "List the files of /tmp, please."),)
"""A conversation to try a server with."""


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
            f"model_name={name}: the server has no such model; {_offer(name, sorted(cards))}"
        )
    card = cards[name]
    base = cards.get(card.get("parent") or "", card)
    return ServedModel(
        name,
        card.get("max_model_len") or base.get("max_model_len"),
        base.get("root") or base["id"],
    )


def context_limit(model: ServedModel, setting: int | None) -> int:
    """Tokens of prompt and completion together, by what the server says and what is asked for.

    Raises:
        PolicyError: neither says it.
    """
    limits = [limit for limit in (model.context_limit, setting) if limit is not None]
    if not limits:
        raise PolicyRefusedError(
            f"context_limit: the server doesn't say how long a context {model.name} has; set it"
        )
    return min(limits)


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


def _offer(name: str, names: list[str]) -> str:
    """The nearest first, and a few others."""
    if not names:
        return "it names none that it has"
    folded = {each.casefold(): each for each in names}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    others = [each for each in names if each.casefold() not in near]
    named = ", ".join(others[:_MODELS_NAMED])
    if len(others) > _MODELS_NAMED:
        named += f" and {len(others) - _MODELS_NAMED} more"
    if not near:
        return f"it has {named}"
    return f"the nearest is {folded[near[0]]}" + (f"; it also has {named}" if named else "")
