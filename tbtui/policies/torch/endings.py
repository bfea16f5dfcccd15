"""What ends a completion: a token, a text, or its length."""

from __future__ import annotations

from collections.abc import Sequence

from tbtui.policies.base import PolicyError, SampleRequest, StopReason
from tbtui.policies.chat.tokenizer_files import TokenizerFiles
from tbtui.policies.chat.vocabulary import Vocabulary
from tbtui.policies.torch.sampling import SamplerSettings

_SILENT = 8
"""So many tokens without a byte of their own may stand in a text: parts of a character, marks."""


class Endings:
    """Says after each token whether its completion is over."""

    def __init__(self, settings: SamplerSettings) -> None:
        self._stop_ids = frozenset(settings.stop_ids)
        self._tokenizer = settings.tokenizer or settings.model
        self._vocabulary: Vocabulary | None = None
        self._unread = True

    def reason(self, request: SampleRequest, ids: Sequence[int]) -> StopReason | None:
        """Why a completion ends with the last of `ids`, its prompt's and its own; None: it goes
        on."""
        drawn = len(ids) - len(request.prompt_ids)
        if ids[-1] in self._stop_ids or self._said(request.sampling.stop, ids, drawn):
            return "stop"
        return "length" if drawn >= request.max_tokens else None

    def _said(self, texts: Sequence[str], ids: Sequence[int], drawn: int) -> bool:
        vocabulary = self._readable() if texts else None
        if vocabulary is None:
            return False
        # Most tokens have a byte at least.
        most = max(len(text.encode(errors="replace")) for text in texts) + _SILENT
        said = "".join(vocabulary.pieces(ids[-min(most, drawn) :]))
        return any(text in said for text in texts)

    def _readable(self) -> Vocabulary | None:
        """The vocabulary, read when a text is first looked for; without one, texts end nothing
        here, and who asked cuts what comes after them."""
        if self._unread:
            self._unread = False
            try:
                self._vocabulary = TokenizerFiles(self._tokenizer).vocabulary
            except PolicyError:
                self._vocabulary = None
        return self._vocabulary
