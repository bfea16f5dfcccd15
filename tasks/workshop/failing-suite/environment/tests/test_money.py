import unittest

from ledger import money


class MoneyTest(unittest.TestCase):
    def test_parse(self):
        self.assertEqual(money.parse("12"), 1200)
        self.assertEqual(money.parse("12.30"), 1230)
        self.assertEqual(money.parse("12.3"), 1230)
        self.assertEqual(money.parse("(7.00)"), -700)

    def test_parse_refuses(self):
        for text in ("", "x", "1.234"):
            with self.assertRaises(ValueError):
                money.parse(text)

    def test_show(self):
        self.assertEqual(money.show(123450), "1,234.50")
        self.assertEqual(money.show(-5), "-0.05")

    def test_split(self):
        self.assertEqual(money.split(100, 3), [34, 33, 33])


if __name__ == "__main__":
    unittest.main()
