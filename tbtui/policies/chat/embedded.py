"""The embedded model's chat format, for servers of that model."""

from __future__ import annotations

from tbtui.policies.local.renderer import LocalRenderer
from tbtui.policies.local.shipped import TOKENIZER
from tbtui.policies.local.tokenizer import LocalTokenizer


class EmbeddedRenderer(LocalRenderer):
    """Implements `tbtui.policies.chat.ChatRenderer`."""

    def __init__(self) -> None:
        super().__init__(LocalTokenizer(TOKENIZER))
        self.stop_ids: tuple[int, ...] = (self.tokenizer.end_id,)
        self.digest: str | None = self.tokenizer.digest
        self.vocab_size: int | None = self.tokenizer.vocab_size
        self.notes: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[type[EmbeddedRenderer], tuple[()]]:
        return type(self), ()
