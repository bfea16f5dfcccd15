"""Amounts of money, always in whole cents."""

import re


def parse(text):
    """Cents for a text such as "12", "12.3", "-0.05", "1,234.50" or "(7.00)".

    Commas group thousands and are ignored. Brackets mean a negative amount. Blanks around the text
    are ignored. More than two decimals, or anything else, raises ValueError.
    """
    plain = text.strip().replace(",", "")
    found = re.fullmatch(r"(-)?([0-9]+)(?:\.([0-9]{1,2}))?", plain)
    bracketed = re.fullmatch(r"(\()([0-9]+)(?:\.([0-9]{1,2}))?\)", plain)
    match = found or bracketed
    if not match:
        raise ValueError(f"not an amount: {text!r}")
    sign, whole, cents = match.groups()
    amount = int(whole) * 100 + int((cents or "").ljust(2, "0"))
    return -amount if sign else amount


def show(cents):
    """Text such as "1,234.50" or "-0.05" for an amount in cents."""
    sign, cents = ("-", -cents) if cents < 0 else ("", cents)
    return f"{sign}{cents // 100:,}.{cents % 100:02d}"


def split(cents, parts):
    """Divides `cents` into `parts` amounts that differ by at most one cent, the larger first.

    The amounts add up to `cents`, for negative amounts too. `parts` below one raises ValueError.
    """
    if parts < 1:
        raise ValueError("parts must be at least 1")
    share, rest = divmod(cents, parts)
    return [share + 1] * rest + [share] * (parts - rest)
