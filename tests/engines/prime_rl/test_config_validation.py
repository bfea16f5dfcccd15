"""Prime-RL's verdict, by its own classes: stand-ins in a checkout, and the real ones if asked for.

`TBTUI_PRIME_RL_REPOSITORY=DIR pytest tests/engines/prime_rl/test_config_validation.py` installs
`packages/prime-rl-configs` of a Git repository of Prime-RL (its HEAD) into a throw-away virtual
environment, and has the real classes check what we generate. It takes a minute and needs a package
index.
"""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from tbtui.config.toml import toml_text
from tbtui.engines.prime_rl.launch.checkout import CHECKOUT_VARIABLE, CLASSES, Validation, validate
from tbtui.engines.prime_rl.migrate import migrate
from tbtui.engines.prime_rl.settings_to_toml import prime_rl_config

from .known_keys import unknown_keys
from .real_checkout import REPOSITORY, check_out
from .test_config_from_settings import config_of, with_everything
from .test_config_migration import SEED

STAND_IN = """
from pydantic import BaseModel, model_validator

class Source(BaseModel, extra="forbid"):
    name: str

class RLConfig(BaseModel, extra="forbid"):
    print("a library that talks")
    source: list[Source]
    max_steps: int = 1

    @model_validator(mode="after")
    def few(self):
        if self.max_steps == 13:
            raise ValueError("not 13:\\n  choose another")
        if self.max_steps == 14:
            raise ModuleNotFoundError("No module named 'tbtui_harbor'")
        return self
"""


def checkout(directory: Path, classes: str) -> Path:
    package = directory / CLASSES / "prime_rl" / "configs"
    package.mkdir(parents=True)
    (package / "rl.py").write_text(classes)
    return directory


def test_every_error_is_a_line_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = checkout(tmp_path, STAND_IN)
    monkeypatch.setenv(CHECKOUT_VARIABLE, str(directory))
    assert validate({"source": [{"name": "a"}]}) == Validation(str(directory))
    verdict = validate({"source": [{}, {"name": 1}], "max_steps": "x", "odd": 1}, directory)
    assert [error.partition(": ")[0] for error in verdict.errors] == [
        "source[0].name",
        "source[1].name",
        "max_steps",
        "odd",
    ]


@pytest.mark.parametrize(
    ("max_steps", "line"),
    [
        (13, "not 13: choose another"),
        (14, "ModuleNotFoundError: No module named 'tbtui_harbor'"),
    ],
)
def test_errors_of_the_whole_file_are_one_line_too(
    tmp_path: Path, max_steps: int, line: str
) -> None:
    verdict = validate({"source": [], "max_steps": max_steps}, checkout(tmp_path, STAND_IN))
    assert verdict.errors == (line,)


def test_without_prime_rl_nothing_is_called_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CHECKOUT_VARIABLE, raising=False)
    verdict = validate({})
    assert verdict.by is None
    assert f"set {CHECKOUT_VARIABLE}" in verdict.unchecked
    verdict = validate({}, tmp_path)
    assert verdict.by is None
    assert verdict.unchecked.startswith(f"{tmp_path} is no checkout of Prime-RL")


def test_classes_that_can_not_be_imported_are_no_verdict(tmp_path: Path) -> None:
    verdict = validate({}, checkout(tmp_path, "import a_library_that_is_missing\n"))
    assert verdict.by is None
    assert verdict.unchecked.endswith("No module named 'a_library_that_is_missing'")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of Prime-RL's configuration classes, with an environment of its own."""
    return check_out(tmp_path_factory.mktemp("prime-rl"))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "arguments",
    [[], ["eval_split=0"], ["lr_schedule=constant", "warmup_steps=3"], ["grad_clip=0"]],
)
def test_the_real_classes_take_what_we_generate(real: Path, arguments: list[str]) -> None:
    verdict = validate(prime_rl_config(config_of(*arguments)), real)
    assert (verdict.errors, verdict.unchecked) == ((), "")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_real_classes_take_every_setting_that_has_a_place(real: Path) -> None:
    document = prime_rl_config(with_everything())
    verdict = validate(tomllib.loads(toml_text(document)), real)
    assert (verdict.errors, verdict.unchecked) == ((), "")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_real_classes_take_what_is_migrated(real: Path) -> None:
    toml, _ = migrate(tomllib.loads(SEED))
    verdict = validate(toml, real)
    assert (verdict.errors, verdict.unchecked) == ((), "")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_real_classes_refuse_the_seeds_file_and_say_where(real: Path) -> None:
    verdict = validate(tomllib.loads(SEED), real)
    keys = [error.partition(": ")[0] for error in verdict.errors]
    assert "wandb" in keys
    assert "orchestrator.rollouts_per_example" in keys


@pytest.mark.slow
@pytest.mark.skipif(REPOSITORY is None, reason="asked for by TBTUI_PRIME_RL_REPOSITORY")
def test_every_example_of_prime_rl_is_todays() -> None:
    """None of them has a key that `migrate` changes, or that `known_keys` lacks."""
    git = ["git", "-C", str(REPOSITORY)]
    listing = subprocess.run(
        [*git, "ls-tree", "-r", "--name-only", "HEAD", "examples", "configs"],
        capture_output=True,
        text=True,
        check=True,
    )
    checked = 0
    for name in listing.stdout.splitlines():
        if not name.endswith(".toml"):
            continue
        text = subprocess.run([*git, "show", f"HEAD:{name}"], capture_output=True, check=True)
        toml = tomllib.loads(text.stdout.decode())
        if "orchestrator" in toml and "trainer" in toml:
            assert migrate(toml) == (toml, []), name
            assert list(unknown_keys(toml)) == [], name
            checked += 1
    assert checked > 5
