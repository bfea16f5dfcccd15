"""What tasks ask for is read from their files; nothing of theirs runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbtui.dockerfile import parse_dockerfile
from tbtui.wheels.requests import PackageRequests, Request, image_python, read_task
from tbtui.wheels.shell import commands

TERMINAL_BENCH = """\
#!/bin/bash
apt-get update
apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh
source $HOME/.local/bin/env
uvx \\
  -p 3.13 \\
  -w pytest==8.4.1 \\
  -w pytest-json-ctrf==0.3.5 \\
  pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; fi
"""
THEIRS = ("pytest", "pytest-json-ctrf==0.3.5", "pytest==8.4.1")


def _read(tmp_path: Path, **files: str) -> PackageRequests:
    for name, text in files.items():
        path = tmp_path / "task" / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_task(tmp_path / "task")


def _of_script(tmp_path: Path, script: str, image: str = "debian:12") -> PackageRequests:
    return _read(tmp_path, environment__Dockerfile=f"FROM {image}\n", tests__test_dot_sh=script)


def test_the_common_verifier(tmp_path: Path) -> None:
    asked = _of_script(tmp_path, TERMINAL_BENCH)
    assert asked.requests == {Request(THEIRS, "3.13", exact=True)}
    assert asked.pythons == {"3.13"}
    assert asked.unread == []


@pytest.mark.parametrize(
    ("line", "packages", "python"),
    [
        ("pip install pytest==8.4.1 requests", ("pytest==8.4.1", "requests"), None),
        ("python3 -m pip install -q --no-cache-dir 'numpy<2'", ("numpy<2",), None),
        ("pip3.12 install numpy", ("numpy",), "3.12"),
        ("cd /x && pip install a; pip install -i https://x/simple b", ("b",), None),
        ("uv pip install --system a b", ("a", "b"), None),
        ("uv add pytest==8.4.1 requests", ("pytest==8.4.1", "requests"), None),
        ("uv run --with a==1 --with=b,c pytest x.py", ("a==1", "b", "c"), None),
        ("uvx ruff@0.5.0 check .", ("ruff==0.5.0",), None),
        ("uvx --from httpie http GET x", ("httpie",), None),
        ("uv tool run --python=3.12 black .", ("black",), "3.12"),
        ("uv tool install a", ("a",), None),
        ("uv venv -p 3.11 .v\nsource .v/bin/activate\nuv pip install a", ("a",), "3.11"),
        ("if ! pip install a > /dev/null 2>&1; then exit 1; fi", ("a",), None),
        ("bash -c 'pip install a'", ("a",), None),
        ("pip install 'passlib[bcrypt]==1.7.4'", ("passlib[bcrypt]==1.7.4",), None),
        ("sudo PIP_X=1 pip install a # and not b", ("a",), None),
    ],
)
def test_ways_to_install(
    tmp_path: Path, line: str, packages: tuple[str, ...], python: str | None
) -> None:
    asked = _of_script(tmp_path, f"#!/bin/bash\n{line}\n")
    assert Request(packages, python, python is not None) in asked.requests
    assert asked.unread == []


@pytest.mark.parametrize(
    "line",
    [
        "echo pip install a",
        "pip install .",
        "pip install -e ./sub",
        "pip list",
        "uv run python x.py",
        "uvx python -c 1",
        "cat > readme <<'EOF'\npip install a\nEOF",
        "# pip install a",
    ],
)
def test_what_asks_for_nothing(tmp_path: Path, line: str) -> None:
    asked = _of_script(tmp_path, f"{line}\n")
    assert asked.requests == set()
    assert asked.unread == []


def test_what_only_running_would_tell_is_named(tmp_path: Path) -> None:
    asked = _of_script(tmp_path, "x=1\npip install $PACKAGES git+https://e.org/x.git ok\n")
    assert asked.requests == {Request(("ok",))}
    assert asked.unread == [
        "task/tests/test.sh:2: $PACKAGES",
        "task/tests/test.sh:2: git+https://e.org/x.git",
    ]


def test_a_dockerfile_with_its_requirements_and_project(tmp_path: Path) -> None:
    asked = _read(
        tmp_path,
        environment__Dockerfile=(
            "ARG VERSION=3.12\nFROM python:${VERSION}-slim\nENV NUMPY=2.1.2\n"
            "COPY requirements.txt /deps/\n"
            "RUN pip install -r /deps/requirements.txt && \\\n    pip install numpy==$NUMPY\n"
            'RUN ["pip", "install", "flask"]\nRUN pip install -e .\n'
        ),
        environment__requirements_dot_txt=(
            "a==1  # the first\n\n-r other.txt\nb>=2 \\\n  --hash=x\n"
        ),
        environment__pyproject_dot_toml=(
            '[build-system]\nrequires = ["hatchling"]\n[project]\ndependencies = ["click"]\n'
        ),
    )
    assert asked.requests == {
        Request(("a==1", "b>=2"), "3.12"),
        Request(("numpy==2.1.2",), "3.12"),
        Request(("flask",), "3.12"),
        Request(("hatchling",), "3.12"),
        Request(("click",), "3.12"),
    }


def test_a_script_that_names_its_own_dependencies(tmp_path: Path) -> None:
    script = '# /// script\n# requires-python = ">=3.11"\n# dependencies = ["rich"]\n# ///\n'
    assert _read(tmp_path, tests__run_dot_py=script).requests == {Request(("rich",))}


def test_debian_packages_are_counted_once_a_task(tmp_path: Path) -> None:
    script = "apt-get update && apt-get install -y -qq --no-install-recommends curl=8 git $MORE\n"
    asked = _of_script(tmp_path, f"{script}apt install curl\n")
    assert asked.debian == {"curl": 1, "git": 1}
    asked.add(asked)
    assert asked.debian == {"curl": 2, "git": 2}


def test_solutions_can_be_left_out(tmp_path: Path) -> None:
    asked = _read(tmp_path, solution__solve_dot_sh="pip install secret\n")
    assert asked.requests == {Request(("secret",))}
    assert read_task(tmp_path / "task", solutions=False).requests == set()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("FROM python:3.13-slim-bookworm", (True, "3.13")),
        ("FROM docker.io/library/python:3.10", (True, "3.10")),
        ("FROM --platform=linux/amd64 python:3 AS x", (True, None)),
        ("FROM ghcr.io/astral-sh/uv:python3.12-bookworm-slim", (True, "3.12")),
        ("FROM continuumio/miniconda3", (True, None)),
        ("FROM python:3.9 AS base\nFROM base", (True, "3.9")),
        ("FROM python:3.9 AS base\nFROM debian:12", (False, None)),
        ("FROM ubuntu:24.04", (False, None)),
        ("FROM python-is-fun/tool:3.9", (False, None)),
    ],
)
def test_the_python_of_an_image(lines: str, expected: tuple[bool, str | None]) -> None:
    assert image_python(parse_dockerfile(f"{lines}\n")) == expected


def test_a_quote_over_several_lines_hides_nothing_else() -> None:
    script = "python3 -c '\npip install no\n'\npip install yes\n"
    assert ("pip", "install", "yes") in [each.words for each in commands(script)]
