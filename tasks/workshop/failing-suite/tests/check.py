"""Runs the shown and the hidden tests, from pristine copies, against the repaired package."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HIDDEN = Path("/tests/hidden")
EXPECTED_TESTS = 24

with tempfile.TemporaryDirectory() as work:
    # Only the package is taken over: edited tests or start-up hooks beside it have no effect.
    shutil.copytree("/app/ledger", Path(work, "ledger"), ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(HIDDEN, Path(work, "hidden"))
    code = ("import sys, unittest; sys.path.insert(0, sys.argv[1]); "
            "unittest.main(module=None, argv=['x', 'discover', '-s', sys.argv[1] + '/hidden', '-t', sys.argv[1]])")
    run = subprocess.run([sys.executable, "-I", "-B", "-c", code, work], cwd=work,
                         capture_output=True, text=True, timeout=30)
    print(run.stderr[-3000:])
    ran = re.search(r"^Ran (\d+) tests", run.stderr, re.MULTILINE)
    if run.returncode or not ran or int(ran[1]) != EXPECTED_TESTS or "\nOK\n" not in run.stderr:
        sys.exit("the tests fail")
