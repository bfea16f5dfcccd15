"""How the small agent's prompt is made, and how what a model answers to it is read: pure."""

from __future__ import annotations

import pytest

from tbtui.rollout.shell_format import (
    example_text,
    holds_examples,
    prompt_template,
    read_answer,
    without_own,
)
from tbtui.view.prompt import instruction_in

ANSWERS = {
    # name: (answer, block, done, what was forgiven)
    "as asked for": ("```bash\nls\n```", "ls", False, ()),
    "several commands": ("```bash\ncd /app\n\nls\n```\n", "cd /app\n\nls", False, ()),
    "the word alone": ("DONE", "", True, ()),
    "both at once": ("```bash\nls\n```\nDONE\n", "ls", True, ()),
    "the word first": ("DONE\n```bash\nls\n```", "ls", True, ()),
    "Windows line ends": ("```bash\r\nls\r\n```\r\nDONE\r\n", "ls", True, ()),
    "a loop has a done of its own": (
        "```bash\nfor f in *; do\n  wc $f\ndone\n```",
        "for f in *; do\n  wc $f\ndone",
        False,
        (),
    ),
    "a here-document that ends with the word": (
        "```bash\ncat > f <<DONE\na\nDONE\n```",
        "cat > f <<DONE\na\nDONE",
        False,
        (),
    ),
    "indented": ("  ```bash\n  if a; then\n    b\n  fi\n  ```", "if a; then\n  b\nfi", False, ()),
    "text around": (
        "I look first.\n```bash\nls\n```\nThis lists files.",
        "ls",
        False,
        ("text around the block",),
    ),
    "not tagged": ("```\nls\n```", "ls", False, ("the block is not tagged",)),
    "tagged sh": ("```sh\nls\n```", "ls", False, ("the block is tagged sh",)),
    "tagged Shell": ("```Shell\nls\n```", "ls", False, ("the block is tagged shell",)),
    "a session": (
        "```console\n$ cat a\nhello\n$ ls\n```",
        "cat a\nls",
        False,
        ("the block is tagged console", "prompts before the commands"),
    ),
    "a session with its prompt": (
        "```bash\nroot@box:/app# ls\n```",
        "ls",
        False,
        ("prompts before the commands",),
    ),
    "not closed": ("```bash\nls -l", "ls -l", False, ("the block is not closed",)),
    "commands beside the fence": ("```bash ls\n```", "ls", False, ("commands beside the fence",)),
    "commands for a tag": (
        "```cp a b\n```",
        "cp a b",
        False,
        ("the block is not tagged", "commands beside the fence"),
    ),
    "the tag below the fence": (
        "```\nbash\nls\n```",
        "ls",
        False,
        ("the block is not tagged", "the tag on a line of its own"),
    ),
    "an empty block before": ("```\n```\n```bash\nls\n```", "ls", False, ()),
    "a fence behind the word": ("DONE\n```", "", True, ()),
    "a fence behind a command": ("ls\nDONE\n```", "ls", True, ("no block",)),
    "on one line": ("```ls -l```", "ls -l", False, ("no block",)),
    "in back quotes": ("`ls -l`", "ls -l", False, ("no block",)),
    "two blocks": (
        "```bash\nls\n```\n```bash\nrm a\n```\nDONE",
        "ls",
        False,
        ("2 blocks, of which the first counts",),
    ),
    "the word between two blocks": (
        "```bash\nls\n```\nDONE\n```bash\nrm a\n```",
        "ls",
        True,
        ("2 blocks, of which the first counts",),
    ),
    "another language before": (
        "```json\n{}\n```\n```bash\nls\n```",
        "ls",
        False,
        ("2 blocks, of which the first counts", "text around the block"),
    ),
    "the word in the block": ("```bash\nls\nDONE\n```", "ls", True, ("DONE in the block",)),
    "the word alone in a block": ("```bash\nDONE\n```", "", True, ("DONE in the block",)),
    "the word with signs": ("**DONE**", "", True, ("DONE with signs around it",)),
    "the word in small letters": ("Done.", "", True, ("Done. for DONE",)),
    "the word and more": ("DONE\nThe file is there.", "", True, ("text around",)),
    "a bare command": ("cp readme.md alpha.txt", "cp readme.md alpha.txt", False, ("no block",)),
    "bare commands": (
        "cd /app\nls\nThis lists.",
        "cd /app\nls",
        False,
        ("no block", "text around"),
    ),
    "a bare command and the word": ("ls\nDONE", "ls", True, ("no block",)),
    "a bare command at a prompt": ("$ ./run.sh now", "./run.sh now", False, ("no block",)),
    "behind a sentence": (
        "Use this command:\ncat a.txt",
        "cat a.txt",
        False,
        ("no block", "text around"),
    ),
    "nothing": ("", "", False, ()),
    "prose": ("I will copy the file to alpha.txt.", "", False, ("text around",)),
    "prose that begins like a command": ("find the file first.", "", False, ("text around",)),
    "the word in a sentence": ("The task is DONE now", "", False, ("text around",)),
    "an answer of Terminus-2": (
        '{"analysis": "a", "commands": [{"keystrokes": "ls\\n"}]}',
        "",
        False,
        ("text around",),
    ),
    "another language": ("```python\nprint(1)\n```", "", False, ("text around",)),
    "an empty block": ("```bash\n```", "", False, ()),
    "a comment alone": ("```bash\n# copy it\n```", "", False, ()),
    "half a fence": ("``", "", False, ("text around",)),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_reading(name: str) -> None:
    answer, block, done, forgiven = ANSWERS[name]
    read = read_answer(answer)
    assert (read.block, read.done) == (block, done)
    assert read.readable == bool(block or done)
    if read.readable:
        assert read.forgiven == forgiven


@pytest.mark.parametrize(
    ("answer", "whole"),
    [
        ("```bash\nls\n```\nAnd then I would", True),
        ("```bash\nls\n```", True),
        ("```bash\nls -", False),
        ("DONE\nThe file is", True),
        ("DON", False),
        ("ls -", False),
        ("I think that", False),
    ],
)
def test_an_answer_that_is_cut_off_counts_where_its_block_was_closed(
    answer: str, whole: bool
) -> None:
    assert read_answer(answer).whole == whole


@pytest.mark.parametrize("noise", ["`" * 30_000, "```\n" * 10_000, "$ " * 20_000, "DONE" * 9_000])
def test_noise_is_read_at_once(noise: str) -> None:
    read_answer(noise)


def test_examples_are_shown_as_they_are_but_the_tasks_own() -> None:
    braces = example_text("Write {a}.\n", "echo {a} > f", "New Terminal Output:\n# echo {a} > f")
    other = example_text("Copy it.", "cp a b", "New Terminal Output:\n# cp a b")
    both = f"{braces}\n{other}"
    assert holds_examples(both)
    assert not holds_examples("Task: none of it has commands.")
    prompt = prompt_template(both).format(instruction="Move it.", terminal_state="#")
    assert both.strip() in prompt
    assert prompt.endswith("\nDONE\n\nTask: Move it.\n")
    plain = prompt_template().format(instruction="Move it.\n\nThen end.", terminal_state="#")
    assert (instruction_in(prompt), instruction_in(plain)) == ("Move it.", "Move it.\n\nThen end.")
    assert without_own(both, "Copy it.\n").strip() == braces.strip()
    assert "Examples" not in prompt_template(without_own(other, "Copy it."))
