"""A stock of things, by name."""


class Stock:
    def __init__(self):
        self._quantities = {}

    def add(self, name, quantity):
        self._quantities[name] = self._quantities.get(name, 0) + quantity

    def total(self, name):
        return self._quantities.get(name, 0)

    def names(self):
        return sorted(self._quantities)
