"""`tbtui prime-rl config` and `tbtui prime-rl migrate`, as a person calls them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tbtui.engines.prime_rl.launch.checkout import CHECKOUT_VARIABLE
from tests.cli.process import invoke

from .test_config_migration import SEED, TODAY
from .test_config_validation import STAND_IN, checkout

ENOUGH = ("model_name=Qwen/Qwen3-8B", "tasks_dir=/tasks")


@pytest.fixture(autouse=True)
def without_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(CHECKOUT_VARIABLE, raising=False)


def prime_rl(*arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    result = invoke("prime-rl", *arguments)
    return result.exit_code, result.stdout, result.stderr


def test_the_file_is_printed_and_what_is_to_be_known_beside_it() -> None:
    status, output, errors = prime_rl("config", *ENOUGH)
    assert status == 0
    assert tomllib.loads(output)["model"] == {"name": "Qwen/Qwen3-8B"}
    assert "tbtui: context_limit: not given" in errors
    assert "tbtui: not validated: " in errors


def test_settings_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('model_name = "Qwen/Qwen3-4B"\ntasks_dir = "/tasks"\n')
    status, output, _ = prime_rl("config", "my.toml", "max_steps=7")
    assert status == 0
    assert tomllib.loads(output)["max_steps"] == 7


def test_a_seeds_file_is_migrated_and_the_changes_are_listed(tmp_path: Path) -> None:
    (tmp_path / "seed.toml").write_text(SEED)
    status, output, errors = prime_rl("migrate", "seed.toml")
    assert status == 0
    assert tomllib.loads(output) == TODAY
    assert "orchestrator.rollouts_per_example -> orchestrator.group_size: renamed\n" in errors
    (tmp_path / "today.toml").write_text(output)
    status, again, errors = prime_rl("migrate", "today.toml")
    assert (status, again) == (0, output)
    assert "today.toml: nothing to change" in errors


def test_what_prime_rl_refuses_is_printed_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.toml").write_text("max_steps = 3\nodd = 1\n")
    directory = checkout(tmp_path / "prime-rl", STAND_IN)
    monkeypatch.setenv(CHECKOUT_VARIABLE, str(directory))
    status, output, errors = prime_rl("migrate", "bad.toml")
    assert (status, output) == (1, "max_steps = 3\nodd = 1\n")
    assert "tbtui: Prime-RL refuses it: odd: Extra inputs are not permitted\n" in errors
    assert "tbtui: Prime-RL refuses it: source: Field required\n" in errors
    (tmp_path / "good.toml").write_text("source = []\n")
    status, _, errors = prime_rl("migrate", "good.toml")
    assert status == 0
    assert f"tbtui: valid, by {directory}\n" in errors


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["config"], "model_name: name the model that Prime-RL trains"),
        (["config", *ENOUGH, "loss_fn=ppo"], "loss_fn=ppo: Prime-RL has a loss of its own"),
        (["config", *ENOUGH, "max_step=1"], "unknown setting 'max_step'"),
        (["migrate", "nowhere.toml"], "nowhere.toml: No such file or directory"),
        (["migrate", "broken.toml"], "broken.toml: "),
        (["migrate", "odd.toml"], "orchestrator: should be a table"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(
    tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    (tmp_path / "broken.toml").write_text("[a\n")
    (tmp_path / "odd.toml").write_text("orchestrator = 1\n")
    status, output, errors = prime_rl(*arguments)
    assert (status, output) == (2, "")
    assert errors.startswith(f"tbtui: {complaint}")
    assert len(errors.splitlines()) == 1


def test_printing_a_file_imports_nothing_heavy() -> None:
    program = (
        "import sys, contextlib, io\n"
        "from tbtui.cli import main\n"
        f"sys.argv = ['tbtui', 'prime-rl', 'config', *{ENOUGH!r}]\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "    main()\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    heavy = {"harbor", "litellm", "verifiers", "prime_rl", "textual", "numpy", "transformers"}
    assert not heavy & set(result.stdout.split())
