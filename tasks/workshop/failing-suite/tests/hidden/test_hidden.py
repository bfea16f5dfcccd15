import unittest
from datetime import date

from ledger import money
from ledger.book import Book, Unbalanced, read


class HiddenMoneyTest(unittest.TestCase):
    def test_parse(self):
        for text, cents in ((" 1,234.50 ", 123450), ("-0.05", -5), ("0.5", 50), ("(0.09)", -9),
                            ("-12", -1200), ("1,000,000", 100000000), ("3.70", 370), ("8.01", 801)):
            self.assertEqual(money.parse(text), cents, text)

    def test_parse_refuses(self):
        for text in ("", "x", "1.234", "--5", "1.2.3", "(5", "12 3", ".", "-", "1.-2", "1.x"):
            with self.assertRaises(ValueError, msg=text):
                money.parse(text)

    def test_show(self):
        for cents, text in ((0, "0.00"), (5, "0.05"), (-5, "-0.05"), (-123, "-1.23"),
                            (-100, "-1.00"), (-1234567, "-12,345.67"), (99999, "999.99")):
            self.assertEqual(money.show(cents), text)

    def test_split(self):
        for cents, parts in ((100, 3), (7, 7), (0, 4), (-100, 3), (5, 8), (-1, 2), (9, 1), (12, 5)):
            amounts = money.split(cents, parts)
            self.assertEqual(len(amounts), parts)
            self.assertEqual(sum(amounts), cents)
            self.assertLessEqual(max(amounts) - min(amounts), 1)
            self.assertEqual(amounts, sorted(amounts, reverse=True))
        with self.assertRaises(ValueError):
            money.split(5, 0)


class HiddenBookTest(unittest.TestCase):
    def setUp(self):
        self.book = Book()
        self.book.post("2024-01-05", "Open", [("bank:giro", 1000), ("equity", -1000)])
        self.book.post("2024-01-05", "Advance", [("bankers", 70), ("bank:giro", -70)])
        self.book.post("2024-01-03", "Cash", [("bank", 30), ("equity", -30)])

    def test_sub_accounts(self):
        self.assertEqual(self.book.balance("bank"), 960)
        self.assertEqual(self.book.balance("bank:giro"), 930)
        self.assertEqual(self.book.balance("bankers"), 70)
        self.assertEqual(self.book.balance("ban"), 0)

    def test_until(self):
        self.assertEqual(self.book.balance("bank", date(2024, 1, 3)), 30)
        self.assertEqual(self.book.balance("bank", date(2024, 1, 2)), 0)
        self.assertEqual(self.book.balance("bank", date(2024, 1, 5)), 960)

    def test_post_refuses(self):
        for lines in ([], [("bank", 0)]):
            with self.assertRaises(ValueError):
                self.book.post("2024-01-01", "Short", lines)
        with self.assertRaises(Unbalanced):
            self.book.post("2024-01-01", "Off", [("bank", 1), ("equity", 1)])
        self.assertEqual(len(self.book.transactions), 3)

    def test_lines_are_copied(self):
        lines = [("bank", 1), ("equity", -1)]
        self.book.post(date(2024, 1, 6), "Copy", lines)
        lines.append(("bank", 5))
        self.assertEqual(self.book.balance("bank"), 961)

    def test_given_transactions(self):
        given = list(self.book.transactions)
        self.assertEqual(Book(given).balance("bank"), 960)

    def test_statement(self):
        self.book.post("2024-01-05", "Aa", [("bank:giro", 5), ("bank:giro", 6), ("equity", -11)])
        rows = self.book.statement("bank:giro")
        self.assertEqual([row[1:] for row in rows],
                         [("Open", 1000, 1000), ("Advance", -70, 930), ("Aa", 11, 941)])
        self.assertEqual(self.book.statement("bank"), [(date(2024, 1, 3), "Cash", 30, 30)])

    def test_close_year(self):
        book = Book()
        book.post("2023-05-01", "Sale", [("bank", 500), ("income", -300), ("income:shop", -200)])
        book.post("2023-12-31", "Rent", [("expense:rent", 200), ("bank", -200)])
        book.post("2023-06-01", "Prize", [("incomes", -10), ("bank", 10)])
        book.post("2024-01-01", "Next", [("bank", 50), ("income:shop", -50)])
        book.close_year(2023)
        self.assertEqual(len(book.transactions), 5)
        end = date(2023, 12, 31)
        self.assertEqual([book.balance(a, end) for a in ("income", "income:shop", "expense")], [0, 0, 0])
        self.assertEqual(book.balance("incomes"), -10)
        self.assertEqual(book.balance("equity"), -300)
        self.assertEqual(book.balance("income:shop"), -50)
        book.close_year(2023)
        self.assertEqual(len(book.transactions), 5)

    def test_read(self):
        book = read("# c\n\n   \n2024-02-01; Sale; petty cash 12.5; income (12.50)\n"
                    "2024-02-02;Two;a 1;b -1\n")
        self.assertEqual(book.balance("petty cash"), 1250)
        self.assertEqual(book.accounts(), ["a", "b", "income", "petty cash"])

    def test_read_refuses(self):
        for text, number in (("2024-13-01; x; a 1; b -1", 1), ("# c\n2024-01-01; x; a 1; b 1", 2),
                             ("\n\n2024-01-01; x; a; b -1", 3), ("2024-01-01; x; a 1", 1), ("x", 1)):
            with self.assertRaisesRegex(ValueError, f"^line {number}: ", msg=text):
                read(text)
