"""In place of ring_flash_attn, which needs FlashAttention and so a GPU: imported, never called."""

from collections.abc import Callable


def __getattr__(name: str) -> Callable[..., None]:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*arguments: object, **named: object) -> None:
        raise NotImplementedError(f"ring_flash_attn.{name} needs a GPU")

    return missing
