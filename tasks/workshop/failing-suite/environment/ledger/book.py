"""Accounts and transactions."""

from datetime import date

from ledger import money


class Unbalanced(ValueError):
    """The lines of a transaction don't add up to zero."""


class Book:
    """A list of transactions; each is a date, a text and lines of (account, cents)."""

    def __init__(self, transactions=[]):
        self.transactions = transactions

    def post(self, day, text, lines):
        """Adds a transaction.

        `day` is a `date` or a text "YYYY-MM-DD". The cents of `lines` must add up to zero, else
        Unbalanced is raised and nothing is added. Fewer than two lines raise ValueError. Later
        changes to the list given as `lines` don't change the book.
        """
        if isinstance(day, str):
            day = date.fromisoformat(day)
        if sum(cents for _, cents in lines) != 0:
            raise Unbalanced(text)
        self.transactions.append((day, text, lines))

    def balance(self, account, until=None):
        """Balance of `account` and of its sub-accounts, over days up to and including `until`.

        Sub-accounts of "bank" are named "bank:...": "bank:giro" is one, "bankers" is not.
        """
        return sum(
            cents
            for day, _, lines in self.transactions
            if until is None or day < until
            for name, cents in lines
            if name.startswith(account)
        )

    def accounts(self):
        """Names of all accounts that occur, each once, in alphabetical order."""
        return sorted(name for _, _, lines in self.transactions for name, _ in lines)

    def statement(self, account):
        """Rows (day, text, cents, balance after) of exactly this account, oldest day first.

        Transactions of one day keep the order in which they were posted. A transaction with several
        lines for the account gives one row with their sum.
        """
        rows, balance = [], 0
        for day, text, lines in sorted(self.transactions):
            for name, cents in lines:
                if name == account:
                    balance += cents
                    rows.append((day, text, cents, balance))
        return rows

    def close_year(self, year):
        """Posts one transaction on 31 December that brings income and expense accounts to zero.

        Those are "income", "expense" and their sub-accounts; the difference goes to "equity". Days
        after that year don't count. Does nothing if all of them are at zero already.
        """
        end = date(year, 12, 31)
        lines = []
        for name in self.accounts():
            if name.startswith(("income", "expense")):
                cents = self.balance(name, end)
                if cents:
                    lines.append((name, -cents))
        lines.append(("equity", sum(cents for _, cents in lines)))
        self.post(end, f"Close {year}", lines)


def read(text):
    """A Book from lines "YYYY-MM-DD; text; account amount; account amount; ...".

    An amount is what `money.parse` takes and follows the last blank of its part, so that account
    names may hold blanks. Empty lines and lines that start with "#" are skipped. A line that can't
    be read raises ValueError with a message that starts with "line N: ", N counting from 1 over all
    lines of the text.
    """
    book = Book()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    for number, line in enumerate(lines):
        day, description, *parts = [part.strip() for part in line.split(";")]
        postings = []
        for part in parts:
            account, amount = part.split(" ")
            postings.append((account, money.parse(amount)))
        book.post(day, description, postings)
    return book
