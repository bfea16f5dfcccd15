CREATE TABLE author (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);
CREATE TABLE book (
    id INTEGER PRIMARY KEY,
    title TEXT NOT NULL,
    year INTEGER CHECK (year BETWEEN 0 AND 9999),
    isbn TEXT UNIQUE
);
CREATE TABLE book_author (
    book_id INTEGER NOT NULL REFERENCES book (id) ON DELETE CASCADE,
    author_id INTEGER NOT NULL REFERENCES author (id),
    position INTEGER NOT NULL,
    PRIMARY KEY (book_id, position),
    UNIQUE (book_id, author_id)
);
CREATE TABLE member (
    id INTEGER PRIMARY KEY,
    email TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL
);
CREATE TABLE loan (
    id INTEGER PRIMARY KEY,
    book_id INTEGER NOT NULL REFERENCES book (id),
    member_id INTEGER NOT NULL REFERENCES member (id),
    taken TEXT NOT NULL,
    returned TEXT CHECK (returned >= taken)
);
CREATE TABLE rejected_loan (
    id INTEGER PRIMARY KEY,
    reason TEXT NOT NULL,
    data TEXT NOT NULL
);
