"""migrate.py FILE: brings a library database from schema version 1 to 2."""

import json
import re
import sqlite3
import sys
from pathlib import Path

INDEXES = """
CREATE INDEX loan_open ON loan (member_id, returned);
CREATE INDEX loan_by_book ON loan (book_id, taken);
CREATE INDEX book_author_by_author ON book_author (author_id);
"""


def iso(text):
    text = text.strip()
    match = re.fullmatch(r"(\d{2})\.(\d{2})\.(\d{4})", text)
    return "-".join(reversed(match.groups())) if match else text


def statements(script):
    return [statement for statement in script.split(";") if statement.strip()]


def migrate(db):
    books = db.execute("SELECT id, title, authors, year, isbn FROM books ORDER BY id").fetchall()
    loans = db.execute("SELECT * FROM loans ORDER BY id").fetchall()
    for kind, name in db.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' "
                                 "ORDER BY type = 'table'").fetchall():
        db.execute(f'DROP {kind} IF EXISTS "{name}"')
    for statement in statements(Path(__file__).with_name("schema2.sql").read_text()) + statements(INDEXES):
        db.execute(statement)
    seen = set()
    for key, title, authors, year, isbn in books:
        year = (year or "").strip()
        isbn = re.sub(r"[- ]", "", isbn or "") or None
        isbn = None if isbn in seen else isbn
        seen.add(isbn)
        number = int(year) if re.fullmatch(r"[0-9]{1,4}", year) else None
        db.execute("INSERT INTO book VALUES (?, ?, ?, ?)", (key, (title or "").strip(), number, isbn))
        names = dict.fromkeys(name.strip() for name in (authors or "").split(";") if name.strip())
        for position, name in enumerate(names, start=1):
            db.execute("INSERT OR IGNORE INTO author (name) VALUES (?)", (name,))
            author = db.execute("SELECT id FROM author WHERE name = ?", (name,)).fetchone()[0]
            db.execute("INSERT INTO book_author VALUES (?, ?, ?)", (key, author, position))
    names = {}
    for key, _, email, name, taken, _ in sorted(loans, key=lambda loan: (iso(loan[4]), loan[0])):
        names[email.strip().lower()] = name.strip()
    members = {email: number for number, email in enumerate(sorted(names), start=1)}
    for email, number in members.items():
        db.execute("INSERT INTO member VALUES (?, ?, ?)", (number, email, names[email]))
    known = {book[0] for book in books}
    for loan in loans:
        key, book, email, _, taken, returned = loan
        taken, returned = iso(taken), iso(returned or "") or None
        reason = "no such book" if book not in known else "bad dates" if returned and returned < taken else None
        if reason:
            db.execute("INSERT INTO rejected_loan VALUES (?, ?, ?)",
                       (key, reason, json.dumps(list(loan), ensure_ascii=False)))
        else:
            db.execute("INSERT INTO loan VALUES (?, ?, ?, ?, ?)",
                       (key, book, members[email.strip().lower()], taken, returned))
    db.execute("PRAGMA user_version = 2")


db = sqlite3.connect(sys.argv[1], isolation_level=None)
version = db.execute("PRAGMA user_version").fetchone()[0]
if version != 1:
    sys.exit(0 if version == 2 else 1)
db.execute("BEGIN IMMEDIATE")
try:
    migrate(db)
except BaseException:
    db.execute("ROLLBACK")
    raise
db.execute("COMMIT")
