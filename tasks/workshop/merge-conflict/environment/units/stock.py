"""A stock of things, by name and unit."""

PIECES = {"piece": 1, "dozen": 12}
UNITS = ("piece", "dozen", "kg", "metre")


def base(unit):
    """The unit in which `unit` is counted, and how many of those it holds."""
    if unit not in UNITS:
        raise KeyError(unit)
    return ("piece", PIECES[unit]) if unit in PIECES else (unit, 1)


class Stock:
    def __init__(self):
        self._quantities = {}

    def add(self, name, quantity, unit="piece"):
        unit, factor = base(unit)
        self._quantities[name, unit] = self._quantities.get((name, unit), 0) + quantity * factor

    def total(self, name, unit="piece"):
        counted, factor = base(unit)
        total = self._quantities.get((name, counted), 0)
        return total / factor if factor != 1 else total

    def names(self):
        return sorted({name for name, _ in self._quantities})
