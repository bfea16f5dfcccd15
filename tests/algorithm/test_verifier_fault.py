"""What a verifier printed: could it work? Each text is a real program's."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.verifier_fault import FaultKind, find_fault

OUTPUTS = Path(__file__).parent / "verifier_outputs"

FAULTS: list[tuple[str, FaultKind, str, bool]] = [
    ("uvx", "command", "/tests/test.sh: line 7: uvx: command not found", True),
    ("uvrun", "command", "/tests/test.sh: line 7: uv: command not found", True),
    ("git", "command", "/tests/test.sh: line 5: cargo: command not found", True),
    ("python", "command", "/tests/test.sh: line 2: python: command not found", False),
    ("pip", "module", "/usr/bin/python3: No module named pytest", False),
    ("pip3break", "command", "/tests/test.sh: line 3: pytest: command not found", True),
    ("mod", "module", "ModuleNotFoundError: No module named 'numpy'", False),
    ("npm", "packages", "npm error errno EAI_AGAIN", True),
    ("uv-offline", "packages", "error: No solution found when resolving dependencies", False),
    ("uv-no-index", "packages", "error: Request failed after 3 retries in 5.9s", False),
    ("pytest-collection", "module", "E   ModuleNotFoundError: No module named 'numpyx'", False),
    ("pytest-no-file", "tests", "ERROR: file or directory not found: nosuch.py", False),
    ("pytest-nothing-collected", "tests", "no tests ran in 1.16s", False),
    ("pytest-plugin-missing", "tests", "__main__.py: error: unrecognized arguments: --ctrf", False),
]
NO_FAULTS = ["pytest-command-in-a-test", "pytest-printed-words"]


@pytest.mark.parametrize(("name", "kind", "evidence", "network"), FAULTS)
def test_a_verifier_that_could_not_work(
    name: str, kind: FaultKind, evidence: str, network: bool
) -> None:
    fault = find_fault((OUTPUTS / f"{name}.txt").read_text())
    assert fault is not None
    assert (fault.kind, fault.network) == (kind, network)
    assert evidence in fault.evidence
    assert fault.evidence.isprintable()


@pytest.mark.parametrize("name", NO_FAULTS)
def test_tests_that_had_results(name: str) -> None:
    output = (OUTPUTS / f"{name}.txt").read_text()
    assert find_fault(output) is None
    assert find_fault(f"{output}\nbash: line 1: pytest: command not found\n") is None


def test_every_output_is_in_a_table() -> None:
    names = {path.stem for path in OUTPUTS.glob("*.txt")}
    assert names == {name for name, *_ in FAULTS} | set(NO_FAULTS)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "checked\n",
        "expected 'hello', got 'uvx: command not found\\n'\n",
        "AssertionError: assert 'curl: (6) Could not resolve host' in 'x'\n",
        '  > "bash: line 1: foo: command not found"\n',
        "FAIL: /app/out is missing\n",
        "PASSED test_outputs.py::test_a\nuvx: command not found\n",
        "ok 1 - exists\nnot ok 2 - right\nModuleNotFoundError: No module named 'x'\n",
        "test result: FAILED. 1 passed; 2 failed; 0 ignored\nerror: Failed to run\n",
        '--- FAIL: TestA (0.00s)\nexec: "go": executable file not found in $PATH\n',
        "Ran 3 tests in 0.1s\nFAILED\ncurl: (6) Could not resolve host: x\n",
    ],
)
def test_a_0_that_says_nothing_of_the_verifier(output: str) -> None:
    assert find_fault(output) is None


@pytest.mark.parametrize(
    "line",
    [
        "/bin/sh: 1: pytest: not found",
        "/tests/test.sh: 7: uvx: not found",
        "pyenv: uv: command not found",
        "env: 'node': No such file or directory",
        "/usr/bin/env: ‘python’: No such file or directory",
        "E: Unable to locate package curl",
        "E: Package 'nodejs' has no installation candidate",
        "ERROR: No matching distribution found for pytest==8.4.1",
        "Temporary failure resolving 'archive.example'",
        "fatal: unable to access 'https://github.com/x/y/': Could not resolve host: github.com",
        "wget: unable to resolve host address 'example.org'",
        "OSError: [Errno 28] No space left on device",
        "\x1b[31merror: Failed to fetch: `https://example.org/simple/pytest/`\x1b[0m",
        "Ran 0 tests in 0.000s",
        f"/{'tests/' * 50}test.sh: 7: uvx: not found",
    ],
)
def test_lines_of_common_tools(line: str) -> None:
    fault = find_fault(f"setting up\n{line}\nexit 1\n")
    assert fault is not None
    assert fault.evidence[-12:] in line
    assert fault.evidence.isprintable()


@given(st.text(max_size=2_000))
def test_any_text_is_looked_at(text: str) -> None:
    fault = find_fault(text)
    assert fault is None or fault.evidence.isprintable()
