"""Where the shipped checkpoint and its tokenizer are."""

from __future__ import annotations

from pathlib import Path

SHIPPED = Path(__file__).parent / "checkpoint"
TOKENIZER = SHIPPED / "tokenizer.json"
