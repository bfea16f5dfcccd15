"""A stock of things, by name. Names are case-insensitive."""


def key(name):
    return name.strip().lower()


class Stock:
    def __init__(self):
        self._quantities = {}

    def add(self, name, quantity):
        if quantity < 0:
            raise ValueError(f"negative quantity: {quantity}")
        name = key(name)
        self._quantities[name] = self._quantities.get(name, 0) + quantity

    def remove(self, name, quantity):
        name = key(name)
        if quantity < 0 or self._quantities.get(name, 0) < quantity:
            raise ValueError(f"can't remove {quantity} of {name}")
        self._quantities[name] -= quantity

    def total(self, name):
        return self._quantities.get(key(name), 0)

    def names(self):
        return sorted(self._quantities)
