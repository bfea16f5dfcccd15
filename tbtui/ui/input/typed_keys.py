"""Translates keys from Textual's events to what tmux sends to a trial's terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from tbtui.journal.typed import MAX_TYPED_BYTES, MAX_TYPED_PARTS, Typed

_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "enter": "Enter",
        "tab": "Tab",
        "backspace": "BSpace",
        "escape": "Escape",
        "space": "Space",
        "up": "Up",
        "down": "Down",
        "left": "Left",
        "right": "Right",
        "home": "Home",
        "end": "End",
        "insert": "IC",
        "delete": "DC",
        "pageup": "PPage",
        "pagedown": "NPage",
        "at": "@",
        "backslash": "\\",
        "right_square_bracket": "]",
        "left_square_bracket": "[",
        "circumflex_accent": "^",
        "underscore": "_",
        "slash": "/",
        **{f"f{number}": f"F{number}" for number in range(1, 13)},
    }
)
_MODIFIERS: Mapping[str, str] = MappingProxyType({"ctrl": "C-", "alt": "M-", "shift": "S-"})


def typed_key(key: str, character: str | None) -> Typed | None:
    """Translate one key; None: there is nothing that tmux could send.

    `key` and `character` are those of Textual's event.
    """
    if character is not None and character.isprintable():
        return Typed("text", character)
    *modifiers, name = key.split("+")
    if (key, name) in (("shift+tab", "tab"), ("ctrl+at", "at")):
        return Typed("key", "BTab" if name == "tab" else "C-Space")
    plain = _NAMES.get(name, name if len(name) == 1 and "!" <= name <= "~" else "")
    if not plain or not set(modifiers) <= _MODIFIERS.keys():
        return None
    return Typed("key", "".join(_MODIFIERS[modifier] for modifier in modifiers) + plain)


def pasted(text: str) -> Iterator[Typed]:
    """Split a paste into parts that each fit into a command."""
    # An escape sequence could end the brackets around it, and no person means to paste one.
    text = "".join(char for char in text if char in "\n\r\t" or char.isprintable())
    text = text.encode(errors="ignore").decode()
    most = MAX_TYPED_BYTES if text.isascii() else MAX_TYPED_BYTES // 4
    for start in range(0, len(text), most):
        yield Typed("paste", text[start : start + most])


def commands(parts: list[Typed]) -> Iterator[list[Typed]]:
    """Pack parts into as few commands as hold them; text beside text is joined."""
    batch: list[Typed] = []
    size = 0
    for part in parts:
        length = len(part.text.encode())
        if (batch and size + length > MAX_TYPED_BYTES) or len(batch) == MAX_TYPED_PARTS:
            yield batch
            batch, size = [], 0
        if batch and part.kind == batch[-1].kind == "text":
            batch[-1] = Typed("text", batch[-1].text + part.text)
        else:
            batch.append(part)
        size += length
    if batch:
        yield batch
