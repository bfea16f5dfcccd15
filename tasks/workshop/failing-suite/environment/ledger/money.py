"""Amounts of money, always in whole cents."""


def parse(text):
    """Cents for a text such as "12", "12.3", "-0.05", "1,234.50" or "(7.00)".

    Commas group thousands and are ignored. Brackets mean a negative amount. Blanks around the text
    are ignored. More than two decimals, or anything else, raises ValueError.
    """
    text = text.strip().replace(",", "")
    negative = text.startswith("-")
    if text.startswith("(") and text.endswith(")"):
        negative, text = True, text[1:-1]
    text = text.lstrip("-")
    whole, _, cents = text.partition(".")
    if not whole.isdigit() or (cents and not cents.isdigit()):
        raise ValueError(f"not an amount: {text!r}")
    amount = int(whole) * 100 + int(cents or 0)
    return -amount if negative else amount


def show(cents):
    """Text such as "1,234.50" or "-0.05" for an amount in cents."""
    return f"{cents // 100:,}.{cents % 100:02d}"


def split(cents, parts):
    """Divides `cents` into `parts` amounts that differ by at most one cent, the larger first.

    The amounts add up to `cents`, for negative amounts too. `parts` below one raises ValueError.
    """
    if parts < 1:
        raise ValueError("parts must be at least 1")
    share, rest = divmod(cents, parts)
    return [share + 1] * rest + [share] * (parts - rest - 1)
