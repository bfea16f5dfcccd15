import unittest

from stock import Stock


class StockTest(unittest.TestCase):
    def test_add(self):
        stock = Stock()
        stock.add("nail", 3)
        stock.add("nail", 4)
        self.assertEqual(stock.total("nail"), 7)
