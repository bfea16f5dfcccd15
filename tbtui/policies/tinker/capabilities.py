"""What a server says that it can do: asked for at the start, before the first trial."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tbtui.policies.base import PolicyRefusedError
from tbtui.policies.tinker.abilities import NOT_THERE
from tbtui.policies.tinker.abilities import Abilities as Abilities
from tbtui.policies.tinker.errors import policy_error, status_code
from tbtui.policies.tinker.probe import ask_training as ask_training

if TYPE_CHECKING:
    import tinker

MODELS_NAMED = 5


async def ask_server(rest: tinker.RestClient, model_name: str) -> Abilities:
    """The model's context limit.

    Raises:
        PolicyError: the server doesn't have the model, or not to train or sample; or it can't be
            asked.
    """
    try:
        capabilities = await rest.get_server_capabilities()
    except Exception as error:
        if status_code(error) in NOT_THERE:
            return Abilities(model_name, None).noting(
                "the Tinker server doesn't say which models it has"
            )
        doing = "asking the Tinker server for its models"
        raise policy_error(error, doing, training=False) from error
    models = {model.model_name: model for model in capabilities.supported_models}
    names = [name for name in models if name]
    found = models.get(model_name)
    if found is None:
        raise PolicyRefusedError(_unknown(model_name, names))
    for able, what in ((found.trainable, "train"), (found.sampleable, "sample from")):
        if able is False:
            others = [
                name
                for name in names
                if models[name].trainable is not False and models[name].sampleable is not False
            ]
            raise PolicyRefusedError(
                f"model_name={model_name}: the Tinker server has this model, but not to {what};"
                f" {_offer(model_name, others)}"
            )
    return Abilities(model_name, found.max_context_length)


def context_limit(abilities: Abilities, setting: int | None) -> int:
    """Tokens of prompt and completion together, by what the server says and what is asked for.

    Raises:
        PolicyError: neither says it.
    """
    limits = [limit for limit in (abilities.context_limit, setting) if limit is not None]
    if not limits:
        raise PolicyRefusedError(
            f"context_limit: the Tinker server doesn't say how long a context"
            f" {abilities.model_name} has; set it"
        )
    return min(limits)


def _unknown(model_name: str, names: Sequence[str]) -> str:
    return (
        f"model_name={model_name}: the Tinker server has no such model; {_offer(model_name, names)}"
    )


def _offer(model_name: str, names: Sequence[str]) -> str:
    """The nearest first, and a few others."""
    if not names:
        return "it names none that it has"
    folded = {name.casefold(): name for name in names}
    near = difflib.get_close_matches(model_name.casefold(), folded, n=MODELS_NAMED, cutoff=0.5)
    named = [folded[name] for name in near]
    named += [name for name in sorted(names) if name not in named][: MODELS_NAMED - len(named)]
    left = len(names) - len(named)
    more = f" and {left} more" if left else ""
    if not near:
        return f"it has {', '.join(named)}{more}"
    others = f"; it also has {', '.join(named[1:])}{more}" if named[1:] else ""
    return f"the nearest is {named[0]}{others}"
