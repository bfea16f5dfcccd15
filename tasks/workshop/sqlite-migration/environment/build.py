"""Builds /app/library.db (schema version 1)."""

import random
import sqlite3
import sys

SCHEMA = """
CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT, authors TEXT, year TEXT, isbn TEXT);
CREATE TABLE loans (id INTEGER PRIMARY KEY, book_id INTEGER, email TEXT, name TEXT, taken TEXT, returned TEXT);
CREATE VIEW open_loans AS SELECT * FROM loans WHERE returned = '';
CREATE INDEX loans_email ON loans (email);
PRAGMA user_version = 1;
"""
AUTHORS = ["Le Guin", "Lem", "Čapek", "Butler", "Strugatsky A.", "Strugatsky B.", "lem", "O'Brian"]
PEOPLE = [("ann@example.com", "Ann"), ("bob@example.com", "Bob B."), ("cy@example.org", "Cy"),
          ("dee@example.com", "Dée"), ("eve@example.org", "Eve")]


def day(rng, low, high):
    number = rng.randrange(low, high)
    year, month, date = 2020 + number // 336, number % 336 // 28 + 1, number % 28 + 1
    form = rng.choice(["{0:04d}-{1:02d}-{2:02d}", "{2:02d}.{1:02d}.{0:04d}"])
    return number, form.format(year, month, date)


def build(path, seed, books, loans):
    rng = random.Random(seed)
    db = sqlite3.connect(path)
    db.executescript(SCHEMA)
    for number in range(1, books + 1):
        names = [rng.choice(["", " "]) + name + rng.choice(["", "  "])
                 for name in rng.choices(AUTHORS, k=rng.randrange(4))]
        isbn = rng.choice(["", "978-0-{0:03d}-1", "9780{0:03d}1", " 978 0 {0:03d} 1"]).format(rng.randrange(books))
        db.execute("INSERT INTO books VALUES (?, ?, ?, ?, ?)", (
            number * 3, rng.choice(["Title {}", " Title {} ", "Band \"{}\""]).format(number),
            ";".join(names) + rng.choice(["", ";", "; "]),
            rng.choice(["1968", " 1972", "c. 1950", "", "12345", "0", "1999 "]), isbn))
    for number in range(1, loans + 1):
        email, name = rng.choice(PEOPLE)
        email = rng.choice([email, email.upper(), f" {email}", email.title() + " "])
        name = rng.choice([name, f"{name} ", f"{name} {rng.randrange(3)}"])
        taken, taken_text = day(rng, 0, 1000)
        returned = rng.choice(["", "", day(rng, taken, taken + 60)[1], day(rng, taken, taken + 9)[1],
                               day(rng, max(0, taken - 9), taken + 1)[1]])
        book = rng.randrange(1, books * 3 + 2) if rng.random() < 0.1 else 3 * rng.randrange(1, books + 1)
        db.execute("INSERT INTO loans VALUES (?, ?, ?, ?, ?, ?)",
                   (number * 2, book, email, name, taken_text, returned))
    db.commit()
    db.close()


if __name__ == "__main__":
    build(sys.argv[1], 11, 40, 200)
