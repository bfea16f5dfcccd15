"""The versions of the weights that completions are drawn with, several at once: what has begun with
one is finished with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from tbtui.policies.base import PolicyError
from tbtui.policies.torch.batch import Forward
from tbtui.policies.torch.loading import load_base
from tbtui.policies.torch.sampling import SamplerSettings


class Versions(Protocol):
    """Weights by a number of their own, as a version may be published anew; 0 are those that the
    model comes with."""

    config: Any
    """The model's, as transformers defines it."""

    def add(self, number: int, weights: Path) -> None:
        """Read some.

        Raises:
            PolicyError: the directory doesn't have what it must.
        """
        ...

    def drop(self, number: int) -> None:
        """Free what nothing is drawn with any more."""
        ...

    def forward(self, number: int) -> Forward:
        """Computes with them."""
        ...


def load_versions(settings: SamplerSettings) -> Versions:
    """
    Raises:
        PolicyRefusedError: there is no such model, or it is none that text can be drawn from.
    """
    model = _load(settings.model, settings)
    return _Adapters(model) if settings.lora_rank else _Checkpoints(model, settings)


def _load(model: Path | str, settings: SamplerSettings) -> Any:
    return load_base(model, settings.dtype, settings.device).requires_grad_(False)


class _Adapters:
    """A LoRA adapter per version on one base, which is version 0.

    They are not merged: merging would take a copy of the base per version, and computes in other
    roundings than the trainer does.
    """

    def __init__(self, model: Any) -> None:
        self.config = model.config.get_text_config(decoder=True)
        self._base = model
        self._peft: Any = None
        self._active: int | None = None

    def add(self, number: int, weights: Path) -> None:
        from peft import PeftModel

        name = str(number)
        try:
            if self._peft is None:
                self._peft = PeftModel.from_pretrained(self._base, str(weights), adapter_name=name)
            else:
                self._peft.load_adapter(str(weights), adapter_name=name)
        except (OSError, ValueError, RuntimeError) as error:
            first = (str(error).strip().splitlines() or [""])[0]
            raise PolicyError(f"the adapter in {weights} can't be loaded: {first}") from error
        self._peft.eval().requires_grad_(False)
        # PEFT warns of an active adapter that is dropped.
        self._peft.set_adapter(name, inference_mode=True)
        self._active = number

    def drop(self, number: int) -> None:
        if self._peft is not None and str(number) in self._peft.peft_config:
            self._peft.delete_adapter(str(number))
            self._active = None

    def forward(self, number: int) -> Forward:
        def computed(**inputs: Any) -> Any:
            # The model itself, into which PEFT has put its layers: its wrapper's forward is for
            # training.
            with self._chosen(number):
                return self._base(**inputs)

        return computed

    @contextlib.contextmanager
    def _chosen(self, number: int) -> Iterator[None]:
        if self._peft is None:
            yield
        elif str(number) not in self._peft.peft_config:
            with self._peft.disable_adapter():
                yield
        else:
            if self._active != number:
                self._peft.set_adapter(str(number), inference_mode=True)
                self._active = number
            yield


class _Checkpoints:
    """A whole model per version; there are two while completions of the one before are finished."""

    def __init__(self, model: Any, settings: SamplerSettings) -> None:
        self.config = model.config.get_text_config(decoder=True)
        self._settings = settings
        self._models: dict[int, Any] = {0: model}

    def add(self, number: int, weights: Path) -> None:
        try:
            self._models[number] = _load(weights, self._settings)
        except PolicyError as error:
            raise PolicyError(f"the weights in {weights} can't be loaded: {error}") from error

    def drop(self, number: int) -> None:
        self._models.pop(number, None)

    def forward(self, number: int) -> Forward:
        forward: Forward = self._models[number]
        return forward
