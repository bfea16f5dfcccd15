"""Writes starter tasks as Harbor task directories."""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.by_hand.starter.world import KINDS, StarterTask

Split = Literal["train", "heldout"]

SEED = 1
TRAIN_PER_KIND = 6
HELDOUT_PER_KIND = 3

_TASK_TOML = """\
schema_version = "1.4"

[metadata]
difficulty = "easy"
category = "file-operations"
kind = "{kind}"
split = "{split}"
tags = ["starter", "files", "{kind}"]

[agent]
timeout_sec = 60.0

[verifier]
timeout_sec = 20.0

[environment]
build_timeout_sec = 300.0
workdir = "/app"
"""

# Bash builtins only: no process is forked, so hundreds of these cost nothing. A quoted key such
# as ${want[$key]+x} is looked up as it is; -v and unset would evaluate names chosen by the agent.
_TEST_SH = """\
#!/bin/bash
# Passes when /app holds exactly these directories (d:) and regular files (f:), with these
# contents. One newline at the end of a file may be there or not.
declare -A want=(
{wanted})
reward=/logs/verifier/reward.txt
[[ -d /logs/verifier ]] || mkdir -p /logs/verifier
echo 0 > "$reward"
fail() {{ echo "FAIL: $1"; exit 0; }}
shopt -s globstar dotglob nullglob
LC_ALL=C
[[ -d /app && ! -L /app ]] && cd /app || fail "/app is not a directory"
found=0
for path in **; do
  path=${{path%/}}
  if [[ -L $path ]]; then fail "$path is a symbolic link"
  elif [[ -d $path ]]; then key=d:$path
  elif [[ -f $path ]]; then key=f:$path
  else fail "$path is neither a file nor a directory"
  fi
  [[ ${{want[$key]+x}} ]] || fail "$path should not be there"
  found=$((found + 1))
  [[ $key == d:* ]] && continue
  [[ -r $path ]] || fail "$path can't be read"
  if IFS= read -r -d '' content < "$path"; then fail "$path contains a NUL byte"; fi
  [[ ${{content%$'\\n'}} == "${{want[$key]}}" ]] || fail "$path has other contents: ${{content@Q}}"
done
[[ $found == "${{#want[@]}}" ]] || fail "$found of ${{#want[@]}} paths are there"
echo 1 > "$reward"
"""


@dataclass(frozen=True, slots=True)
class NamedTask:
    """A task of the committed set: its directory's name and its split."""

    name: str
    split: Split
    task: StarterTask


def starter_tasks(seed: int = SEED) -> Iterator[NamedTask]:
    """The committed set: of each kind six to train on and three held out, no two alike."""
    for kind, draw in KINDS.items():
        rng = random.Random(f"{kind}/{seed}")
        seen: set[str] = set()
        while len(seen) < TRAIN_PER_KIND + HELDOUT_PER_KIND:
            task = draw(rng)
            if task.instruction in seen:
                continue
            seen.add(task.instruction)
            split: Split = "train" if len(seen) <= TRAIN_PER_KIND else "heldout"
            yield NamedTask(f"{kind}-{len(seen):02d}", split, task)


def _wanted(goal: Mapping[str, str | None]) -> str:
    """The verifier's table of the final tree, as lines of a bash associative array."""
    lines = []
    for path in sorted(goal):
        content = goal[path]
        key = f"d:{path}" if content is None else f"f:{path}"
        value = "''" if content is None else shlex.quote(content.removesuffix("\n"))
        lines.append(f"  [{key}]={value}\n")
    return "".join(lines)


def write_task(directory: Path, task: StarterTask, split: Split) -> None:
    """Write one Harbor task directory; `directory` must not exist."""
    texts = {
        "task.toml": _TASK_TOML.format(kind=task.kind, split=split),
        "instruction.md": f"{task.instruction}\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n"
        + "".join(f"COPY {name} /app/{name}\n" for name in sorted(task.files)),
        "solution/solve.sh": "#!/bin/bash\ncd /app || exit 1\n" + "\n".join(task.commands) + "\n",
        "tests/test.sh": _TEST_SH.format(wanted=_wanted(task.goal)),
    }
    texts |= {f"environment/{name}": content for name, content in task.files.items()}
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755 if path.suffix == ".sh" else 0o644)


def write_starter(directory: Path, seed: int = SEED) -> list[Path]:
    """Write the whole set into `directory`; returns the task directories.

    Raises `FileExistsError` when one of them is already there: nothing is overwritten.
    """
    written = []
    for named in starter_tasks(seed):
        target = directory / named.name
        target.mkdir(parents=True)
        write_task(target, named.task, named.split)
        written.append(target)
    return written
