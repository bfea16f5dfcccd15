import unittest
from datetime import date

from ledger.book import Book, Unbalanced, read


class BookTest(unittest.TestCase):
    def test_books_are_separate(self):
        Book().post("2024-01-01", "Open", [("bank", 100), ("equity", -100)])
        self.assertEqual(Book().transactions, [])

    def test_unbalanced(self):
        with self.assertRaises(Unbalanced):
            Book().post("2024-01-01", "Open", [("bank", 100), ("equity", -99)])

    def test_balance_until(self):
        book = Book([])
        book.post("2024-01-01", "Open", [("bank", 100), ("equity", -100)])
        book.post("2024-01-02", "Rent", [("expense:rent", 60), ("bank", -60)])
        self.assertEqual(book.balance("bank", date(2024, 1, 2)), 40)

    def test_accounts(self):
        book = Book([])
        book.post("2024-01-01", "Open", [("bank", 100), ("equity", -100)])
        book.post("2024-01-02", "More", [("bank", 100), ("equity", -100)])
        self.assertEqual(book.accounts(), ["bank", "equity"])

    def test_close_year(self):
        book = Book([])
        book.post("2023-05-01", "Sale", [("bank", 500), ("income:shop", -500)])
        book.post("2023-12-31", "Rent", [("expense:rent", 200), ("bank", -200)])
        book.close_year(2023)
        self.assertEqual(book.balance("income"), 0)
        self.assertEqual(book.balance("expense"), 0)
        self.assertEqual(book.balance("equity"), -300)

    def test_read(self):
        book = read("# Shop\n\n2024-02-01; Sale; petty cash 12.50; income -12.50\n")
        self.assertEqual(book.balance("petty cash"), 1250)

    def test_read_refuses(self):
        with self.assertRaisesRegex(ValueError, "^line 3: "):
            read("# Shop\n\n2024-02-01; Sale; cash x; income 1\n")


if __name__ == "__main__":
    unittest.main()
