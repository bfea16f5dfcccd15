"""Harbor without litellm, until somebody needs it.

Terminus-2's module imports litellm to be able to talk to providers: 8 s of CPU and 150 MB in
every worker, and no trial of ours talks to one, because the agent asks the engine.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

_IMPORTERS = {
    "harbor.llms.lite_llm": "LiteLLM",
    "harbor.llms.litellm_config": "configure_litellm_debug",
}
"""Harbor's modules that import litellm, and what Terminus-2 takes from each."""


@contextlib.contextmanager
def litellm_deferred() -> Iterator[None]:
    """Import Terminus-2 in this block and litellm is left out.

    What Terminus-2 takes from litellm is fetched when it is first called. Everybody else who
    imports it, then or later (a verifier that asks a model), gets the real one.
    """
    stand_ins = {
        name: _stand_in(name, taken)
        for name, taken in _IMPORTERS.items()
        if name not in sys.modules
    }
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, module in stand_ins.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


def _stand_in(name: str, taken: str) -> ModuleType:
    module = ModuleType(name)

    def real(attribute: str) -> Any:
        if sys.modules.get(name) is module:
            del sys.modules[name]
        return getattr(importlib.import_module(name), attribute)

    def call(*args: Any, **kwargs: Any) -> Any:
        return real(taken)(*args, **kwargs)

    def something_else(attribute: str) -> Any:
        # The import system asks for such, and takes a missing one for an answer.
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return real(attribute)

    module.__dict__.update({taken: call, "__getattr__": something_else})
    return module
