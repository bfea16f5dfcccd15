"""The embedded policy's chat format.

    <|user|> text <|end|> <|asst|> text <|end|> <|user|> text <|end|> <|asst|>

A system message is rendered as a user's. What the assistant said is never encoded again when its
token ids are at hand (`extend`), so the conversation always starts with exactly what was sampled.
"""

from __future__ import annotations

from collections.abc import Sequence

from tbtui.policies.base import Answer, Message
from tbtui.policies.local.terminus import normalise
from tbtui.policies.local.tokenizer import LocalTokenizer


class LocalRenderer:
    """Implements `tbtui.policies.base.Renderer`. Can be pickled."""

    def __init__(self, tokenizer: LocalTokenizer) -> None:
        self.tokenizer = tokenizer

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return self.extend((), messages, 0)

    def extend(
        self, history: Sequence[int], messages: Sequence[Message], known: int
    ) -> tuple[int, ...]:
        tokenizer = self.tokenizer
        ids = list(history)
        if ids and ids[-1] != tokenizer.end_id:
            ids.append(tokenizer.end_id)  # a completion that was cut off at its limit
        for message in messages[known:]:
            if message.role == "assistant":
                ids += [tokenizer.assistant_id, *tokenizer.encode(message.content)]
            else:
                ids += [tokenizer.user_id, *tokenizer.encode(normalise(message.content))]
            ids.append(tokenizer.end_id)
        return (*ids, tokenizer.assistant_id)

    def answer(self, completion_ids: Sequence[int]) -> Answer:
        return Answer(self.tokenizer.decode(completion_ids))

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        return self.tokenizer.pieces(token_ids)
