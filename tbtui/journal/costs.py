"""Money, for a person."""

from __future__ import annotations


def dollars(usd: float) -> str:
    """US dollars, in cents; less than ten cents with two significant digits."""
    if usd == 0 or usd >= 0.1:
        return f"${usd:,.2f}"
    return f"${usd:.2g}" if usd >= 1e-4 else "<$0.0001"
