"""What a run directory, a checkpoint or a cloned repository may not say by itself.

A colleague's run directory is taken up, evaluated and explained, in a working directory that has a
module of the colleague's too: no code of it runs, nothing is connected to, and one line says what
to type to allow it. One's own runs go on without a question.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tbtui.cli import app
from tbtui.config import RunConfig, parse_settings, settings, to_json, to_toml
from tbtui.config.sources import KEYS
from tbtui.engines.request import request_run
from tbtui.engines.resume import request_resume
from tbtui.journal.events import SettingsChanged
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tests.events import run_started, write_journal
from tests.view.story import one_step_run

pytestmark = pytest.mark.uid

GUIDE = Path(__file__).parents[2] / "tbtui" / "guide" / "trust.md"
EVIL = "evil_module_of_a_colleague"
NAMED: dict[str, dict[str, Any]] = {
    "a renderer that is a function": {"renderer": "cProfile:run", "tokenizer": "print('ran')"},
    "a renderer beside it": {"renderer": f"{EVIL}:X"},
    "an environment beside it": {"environment_type": f"{EVIL}:X"},
    "a Tinker server": {"policy": "tinker", "tinker_base_url": "http://127.0.0.1:PORT"},
    "a vLLM server": {"policy": "vllm", "vllm_base_url": "http://127.0.0.1:PORT"},
    "a checkout of Prime-RL": {"engine": "prime-rl", "prime_rl_dir": Path("/tmp/evil")},
    "a file of Prime-RL's": {"engine": "prime-rl", "prime_rl_config": Path("/tmp/evil.toml")},
    "a tokenizer": {"tokenizer": "/tmp/evil"},
    "a checkpoint": {"checkpoint": "/tmp/evil"},
    "tasks": {"tasks_dir": Path("/tmp/evil")},
    "review rules": {"review_rules": Path("/tmp/evil.toml")},
    "a machine": {"gpu_hosts": ("-oProxyCommand=touch ran",)},
    "files of the host": {"environment_kwargs": {"visible": ["/"]}},
    "a key for its tasks": {"task_credentials": ("TINKER_API_KEY",)},
    "alerts": {"alerts": ("command:touch ran", "http://127.0.0.1:PORT")},
    "privileges": {"environment_kwargs": {"trust_compose": True}},
}


class Listener:
    """A server that nobody should talk to."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]

    def was_called(self) -> bool:
        try:
            self._socket.accept()
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    server = Listener()
    yield server
    server.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cloned repository, in which somebody with a key works."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TINKER_API_KEY", "tml-a-real-key")
    place = tmp_path / "clone"
    place.mkdir()
    (place / f"{EVIL}.py").write_text("open('ran', 'w').close()\nclass X: ...\n")
    monkeypatch.chdir(place)
    # As `python -m` has it.
    monkeypatch.syspath_prepend(str(place))
    return place


def a_run(place: Path, **named: Any) -> RunDirectory:
    run = RunDirectory.create(place / "runs" / "theirs")
    run.config.write_text(to_toml(RunConfig(logs_dir=place / "runs", **named)))
    return write_journal(run, one_step_run())


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def refused(result: Result, name: str) -> str:
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    (line,) = result.stderr.splitlines()
    assert f"'{name}" in line, line
    assert "repeat it to allow it: tbtui " in line
    return line


@pytest.mark.parametrize("named", NAMED.values(), ids=NAMED)
def test_a_run_of_a_colleague_names_nothing_by_itself(
    here: Path, listener: Listener, named: dict[str, Any]
) -> None:
    named = {
        name: each.replace("PORT", str(listener.port)) if isinstance(each, str) else each
        for name, each in named.items()
    }
    run = a_run(here, max_steps=9, **named)
    first = next(name for name, each in settings().items() if each.about.trust and name in named)
    for way in ([], ["--print-config"], ["--explain"]):
        refused(invoke("run", "--no-ui", "--resume", str(run.path), *way), first)
    assert not (here / "ran").exists()
    assert not listener.was_called()
    assert EVIL not in sys.modules


@pytest.mark.parametrize("name", ["renderer", "tinker_base_url", "environment_kwargs"])
def test_its_checkpoint_names_nothing_by_itself(here: Path, name: str, starter: Path) -> None:
    values: dict[str, Any] = {
        "renderer": f"{EVIL}:X",
        "tinker_base_url": "http://evil",
        "environment_kwargs": {"visible": ["/"]},
    }
    run = a_run(here, **{name: values[name]})
    shutil.copytree(starter, run.checkpoints / "step-000001")
    for target in ("theirs", str(run.checkpoints / "step-000001")):
        refused(invoke("eval", target, "--latest", "--no-ui")
                if target == "theirs" else invoke("eval", target, "--no-ui"), name)  # fmt: skip
    assert not (here / "ran").exists()


@pytest.fixture
def starter(tmp_path: Path) -> Path:
    """A checkpoint directory without any files of a policy, which is whole."""
    path = tmp_path / "checkpoint"
    path.mkdir()
    (path / "trainer.json").write_text(
        '{"step": 1, "weights_version": 1, "format": 1, "tbtui_version": "1", "policy": "tinker",'
        ' "model_name": "m", "parameters": null, "tokenizer": null, "journal_seq": 1,'
        ' "settings": {}, "files": {}}'
    )
    return path


def test_a_checkpoint_alone_names_nothing_by_itself(here: Path, starter: Path) -> None:
    state = (starter / "trainer.json").read_text()
    said = state.replace('"settings": {}', '"settings": {"tinker_base_url": "http://evil"}')
    (starter / "trainer.json").write_text(said)
    line = refused(invoke("eval", str(starter), "--no-ui"), "tinker_base_url")
    assert line.endswith(f"tbtui eval {starter} tinker_base_url=http://evil")


def test_nor_does_its_journal(here: Path) -> None:
    run = a_run(here)
    with JournalWriter(run, continues=True) as journal:
        journal.append(SettingsChanged(settings={"review_rules": "/tmp/evil.toml"}, before={}))
    refused(invoke("run", "--no-ui", "--resume", str(run.path)), "review_rules")


def test_what_is_repeated_is_allowed_and_asked_for_once(here: Path) -> None:
    rules = here / "rules.toml"
    rules.write_text("[[rule]]\ndo = 'accept'\n")
    run = a_run(here, review="always", review_rules=rules)
    resume = ("run", "--resume", str(run.path), "--print-config")
    line = refused(invoke(*resume), "review_rules")
    typed = re.search(r"repeat it to allow it: tbtui (.*)$", line)
    assert typed is not None
    assert invoke(*typed[1].split(), "max_steps=9", "--print-config").exit_code == 0
    assert invoke(*resume, "max_steps=9").exit_code == 0
    # Together with something else it is not what was allowed.
    text = run.config.read_text()
    run.config.write_text(text.replace("environment_kwargs = {}", 'environment_kwargs = {"x" = 1}'))
    assert "environment_kwargs.x" in refused(invoke(*resume, "max_steps=9"), "review_rules")


def test_ones_own_run_goes_on_without_a_question_and_a_copy_elsewhere_does_not(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = here / "rules.toml"
    rules.write_text("[[rule]]\ndo = 'accept'\n")
    config = parse_settings(["review=always", f"review_rules={rules}", "run_name=mine"])
    run = write_journal(request_run(config).directory, one_step_run())
    assert request_resume("mine", ["max_steps=9"]).config.review_rules == rules
    # Its directory may lie anywhere.
    shutil.copytree(run.path, here / "elsewhere" / "mine")
    request_resume(str(here / "elsewhere" / "mine"), ["max_steps=9"])
    # Somebody else, who was given it, is asked.
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "state-of-another"))
    refused(invoke("run", "--resume", str(run.path), "--print-config"), "review_rules")


@pytest.mark.slow
def test_workers_import_nothing_from_the_working_directory(here: Path) -> None:
    """A module of the colleague's stands where the workers, the policy and wandb would find it."""
    for name in ("numpy", "harbor", "yaml", "tokenizers", "json", "asyncio", "wandb", "psutil"):
        (here / f"{name}.py").write_text("open('ran', 'w').close()\nraise SystemExit('hijacked')\n")
    script = Path(sys.executable).with_name("tbtui")
    done = subprocess.run(
        [script, "run", "--no-ui", "max_steps=1", "batch_size=1", "group_size=2", "eval_every=0",
         "n_workers=1", "eval_tasks=copy-01"],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (here / "ran").exists()


# Passwords


def test_a_password_in_an_address_is_not_written_down(here: Path, listener: Listener) -> None:
    address = f"http://me:hunter2@127.0.0.1:{listener.port}/v1"
    config = ["policy=vllm", "model_name=m", "max_steps=0", "run_name=mine"]
    shown = invoke("run", "--print-config", *config, f"vllm_base_url={address}")
    assert "http://me:***@127.0.0.1" in shown.stdout
    run = request_run(parse_settings([*config, f"vllm_base_url={address}"])).directory
    assert "me:***@127.0.0.1" in run.config.read_text()
    settings_of_run = to_json(parse_settings([f"vllm_base_url={address}"]))
    write_journal(run, [run_started(settings=settings_of_run)])
    everything = b"".join(each.read_bytes() for each in run.path.rglob("*") if each.is_file())
    assert b"hunter2" not in everything + shown.output.encode()
    # Taken up again it is asked for, and then used.
    result = invoke("run", "--no-ui", "--resume", str(run.path))
    assert result.exit_code == 2
    assert "passwords are not written down; give it again" in result.stderr
    again = request_resume(str(run.path), [f"vllm_base_url={address}"])
    assert again.config.vllm_base_url == address


def test_a_tinker_server_is_given_no_password(here: Path) -> None:
    address = "tinker_base_url=http://me:hunter2@localhost"
    result = invoke("run", "--no-ui", "policy=tinker", "model_name=m", address)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "leave user and password out of it" in result.stderr
    assert "hunter2" not in result.output
    assert not (here / "runs").exists()


# `.env`


HIJACKS = ("PYTHONPATH", "LD_PRELOAD", "OPENAI_BASE_URL", "HTTPS_PROXY",
           "http_proxy", "PATH", "WANDB_BASE_URL", "WANDB__EXECUTABLE", "HF_ENDPOINT",
           "SSL_CERT_FILE", "BASH_ENV", "DOCKER_HOST")  # fmt: skip


def test_a_cloned_dotenv_sets_keys_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from tbtui.config.sources import load_secrets

    environment: dict[str, str] = {}
    monkeypatch.setattr(os, "environ", environment)
    lines = [f"{name}=secret-value\n" for name in (*HIJACKS, "\x9b31m", "HF_TOKEN")]
    (here / ".env").write_text("".join(lines))
    said = load_secrets(here)
    assert environment == {"HF_TOKEN": "secret-value"}
    assert "PYTHONPATH, LD_PRELOAD" in said
    assert "secret-value" not in said
    assert said.isprintable()


@pytest.mark.parametrize("name", ["TINKER_BASE_URL", "PRIME_RL_DIR", "renderer"])
def test_a_cloned_dotenv_with_a_setting_is_refused(here: Path, name: str) -> None:
    (here / ".env").write_text(f"{name}=x\n")
    result = invoke("run", "--no-ui", "max_steps=0")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{name.lower()} is a setting" in result.stderr


def test_what_dotenv_may_set_names_no_place() -> None:
    places = re.compile("URL|HOST|PROXY|PATH|PRELOAD|ENDPOINT|DIR|CONFIG|DOMAIN|EXECUTABLE")
    assert [name for name in KEYS if places.search(name)] == []


# The guide


def test_the_guide_has_every_setting_that_needs_trust() -> None:
    text = GUIDE.read_text().partition("## What a file may say")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| `")]
    told = {row[0].strip(" `"): row[1].strip() for row in rows if len(row) == 2}
    needed = {name: each.about.trust for name, each in settings().items() if each.about.trust}
    assert told == needed
    allowed = text.partition("It may set ")[2].partition("; ")[0]
    assert set(re.findall(r"`(\w+)`", allowed)) == KEYS
