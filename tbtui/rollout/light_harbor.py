"""Imports Harbor without litellm, until something needs it.

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

_CLIENT = "harbor.llms.lite_llm"
"""Takes too much from litellm while it is imported to be given a stand-in for litellm."""


@contextlib.contextmanager
def litellm_deferred() -> Iterator[None]:
    """A block in which Terminus-2 is imported without litellm.

    What Terminus-2 takes from litellm is fetched when it is first called. Everybody else who
    imports it, then or later (a verifier that asks a model), gets the real one.
    """
    stand_ins = {
        name: stand_in
        for name, stand_in in ((_CLIENT, _client()), ("litellm", _Deferred("litellm")))
        if name not in sys.modules
    }
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, module in stand_ins.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


class _Deferred(ModuleType):
    """Becomes the real module when something is first read from it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__dict__["_settings"] = {}

    def __getattr__(self, attribute: str) -> Any:
        # The import system asks for such, and takes a missing one for an answer.
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(self._real(), attribute)

    def __setattr__(self, attribute: str, value: Any) -> None:
        # Harbor sets one of litellm's flags while it is imported: kept until litellm is there.
        known = sys.modules.get(self.__name__)
        if attribute.startswith("__"):
            super().__setattr__(attribute, value)
        elif known is None or known is self:
            self.__dict__["_settings"][attribute] = value
        else:
            setattr(known, attribute, value)

    def _real(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        real = importlib.import_module(self.__name__)
        settings = self.__dict__["_settings"]
        while settings:
            setattr(real, *settings.popitem())
        return real


def _client() -> ModuleType:
    module = _Deferred(_CLIENT)

    def client(*args: Any, **kwargs: Any) -> Any:
        return module._real().LiteLLM(*args, **kwargs)

    module.__dict__["LiteLLM"] = client
    return module
