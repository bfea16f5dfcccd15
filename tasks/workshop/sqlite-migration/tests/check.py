"""Checks the migrated database, and migrations of hidden ones, against an independent reference."""

import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, "/tests")
import build  # noqa: E402 - the program that built the given database

TABLES = ("author", "book", "book_author", "member", "loan", "rejected_loan")
FAST = (
    "SELECT * FROM loan WHERE member_id = 1 AND returned IS NULL",
    "SELECT * FROM loan WHERE book_id = 3 ORDER BY taken",
    "SELECT book.title FROM book JOIN book_author ON book_id = book.id WHERE author_id = 1",
    "SELECT * FROM book WHERE isbn = '1'",
)


def expect(actual, wanted, what):
    if actual != wanted:
        sys.exit(f"{what}: {str(actual)[:300]}, expected {str(wanted)[:300]}")


def iso(text):
    return f"{text[6:]}-{text[3:5]}-{text[:2]}" if "." in text else text


def reference(old):
    """What version 2 must hold, by table, for a version 1 database."""
    books, links, isbns = [], [], set()
    for key, title, authors, year, isbn in old.execute("SELECT * FROM books ORDER BY id"):
        isbn = isbn.replace("-", "").replace(" ", "")
        books.append((key, title.strip(), int(year) if re.fullmatch(r"\s*\d{1,4}\s*", year) else None,
                      isbn if isbn and isbn not in isbns else None))
        isbns.add(isbn)
        seen = []
        for name in (part.strip() for part in authors.split(";")):
            if name and name not in seen:
                seen.append(name)
                links.append((key, name, len(seen)))
    rows = old.execute("SELECT * FROM loans ORDER BY id").fetchall()
    latest = {}
    for row in rows:
        email, when = row[2].strip().lower(), (iso(row[4]), row[0])
        if email not in latest or when > latest[email][0]:
            latest[email] = (when, row[3].strip())
    members = [(number, email, latest[email][1]) for number, email in enumerate(sorted(latest), start=1)]
    ids = {email: number for number, email, _ in members}
    loans, rejected = [], []
    for row in rows:
        taken, returned = iso(row[4]), iso(row[5]) or None
        if row[1] not in {book[0] for book in books}:
            rejected.append((row[0], "no such book", list(row)))
        elif returned and returned < taken:
            rejected.append((row[0], "bad dates", list(row)))
        else:
            loans.append((row[0], row[1], ids[row[2].strip().lower()], taken, returned))
    return books, links, members, loans, rejected


def shape(db):
    """Columns, foreign keys, uniqueness and CHECK clauses of all tables."""
    result = {}
    for name, sql in db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"):
        uniques = sorted(
            [column[2] for column in db.execute(f"PRAGMA index_info('{index[1]}')")]
            for index in db.execute(f"PRAGMA index_list('{name}')") if index[2]
        )
        checks = sorted(re.sub(r"\s", "", check.lower()) for check in re.findall(r"CHECK\s*\((.*?)\)", sql, re.I | re.S))
        result[name] = (db.execute(f"PRAGMA table_info('{name}')").fetchall(),
                        sorted(map(str, db.execute(f"PRAGMA foreign_key_list('{name}')"))), uniques, checks)
    return result


def check(path, old_path, what):
    wanted = sqlite3.connect(":memory:")
    wanted.executescript(Path("/tests/schema2.sql").read_text())
    db, old = sqlite3.connect(path), sqlite3.connect(old_path)
    expect(db.execute("PRAGMA user_version").fetchone(), (2,), f"{what}: version")
    expect(shape(db), shape(wanted), f"{what}: schema")
    expect(db.execute("SELECT name FROM sqlite_master WHERE type IN ('view', 'trigger')").fetchall(), [], f"{what}: views")
    expect(db.execute("PRAGMA integrity_check").fetchall(), [("ok",)], what)
    expect(db.execute("PRAGMA foreign_key_check").fetchall(), [], what)
    books, links, members, loans, rejected = reference(old)
    expect(db.execute("SELECT * FROM book ORDER BY id").fetchall(), books, f"{what}: book")
    query = "SELECT book_id, name, position FROM book_author JOIN author ON author.id = author_id ORDER BY 1, 3"
    expect(db.execute(query).fetchall(), links, f"{what}: authors")
    expect(db.execute("SELECT count(*) FROM author").fetchone()[0], len({link[1] for link in links}), f"{what}: authors")
    expect(db.execute("SELECT * FROM member ORDER BY id").fetchall(), members, f"{what}: member")
    expect(db.execute("SELECT * FROM loan ORDER BY id").fetchall(), loans, f"{what}: loan")
    found = [(key, reason, json.loads(data)) for key, reason, data in db.execute("SELECT * FROM rejected_loan ORDER BY id")]
    expect(found, rejected, f"{what}: rejected_loan")
    for query in FAST:
        plan = " / ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}"))
        if "SCAN" in plan or "TEMP B-TREE" in plan:
            sys.exit(f"{what}: slow: {query}: {plan}")
    db.close()


def migrate(path):
    return subprocess.run([sys.executable, "-B", "/app/migrate.py", str(path)], capture_output=True,
                          text=True, timeout=20, cwd="/")


with tempfile.TemporaryDirectory() as name:
    work = Path(name)
    build.build(work / "given", 11, 40, 200)
    check("/app/library.db", work / "given", "/app/library.db")
    for seed, (books, loans) in enumerate([(25, 120), (3, 30), (200, 800), (1, 0)], start=900):
        old, new = work / f"{seed}.old", work / f"{seed}.db"
        build.build(old, seed, books, loans)
        new.write_bytes(old.read_bytes())
        done = migrate(new)
        expect((done.returncode, done.stderr[-300:]), (0, ""), f"database {seed}")
        check(new, old, f"database {seed}")
    migrated = new.read_bytes()
    expect((migrate(new).returncode, new.read_bytes() == migrated), (0, True), "a second migration")
    other = work / "other.db"
    build.build(other, 5, 3, 3)
    db = sqlite3.connect(other)
    db.execute("PRAGMA user_version = 7")
    db.close()
    before = other.read_bytes()
    expect((migrate(other).returncode, other.read_bytes() == before), (1, True), "version 7")
    failing = work / "failing.db"
    build.build(failing, 6, 20, 50)
    db = sqlite3.connect(failing)
    db.execute("ALTER TABLE books RENAME COLUMN isbn TO code")  # not the schema that the program knows
    db.commit()
    db.close()
    dump = list(sqlite3.connect(failing).iterdump())
    status = migrate(failing).returncode
    expect((status != 0, list(sqlite3.connect(failing).iterdump()) == dump), (True, True), "a failing migration")
