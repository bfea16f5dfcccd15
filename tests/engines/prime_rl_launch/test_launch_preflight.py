"""What is asked before Prime-RL is started, and what is refused."""

from __future__ import annotations

import asyncio
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from tbtui.config import ConfigError, parse_settings
from tbtui.engines.gpus import LocalGpus
from tbtui.engines.make_run import prepare
from tbtui.engines.prime_rl.launch import checkout as checkouts
from tbtui.engines.prime_rl.launch.checkout import commit_warnings, find_checkout
from tbtui.engines.prime_rl.launch.configuration import Facts
from tbtui.engines.prime_rl.launch.preflight import PreflightFinding, gpus
from tbtui.engines.prime_rl.launch.prepare import check_launch
from tbtui.engines.request import request_run
from tbtui.errors import UserError
from tbtui.journal.events import GpuMeasured

from .conftest import Place
from .stand_in import a_file, git, make_checkout, program, write_file


def refusal(place: Place, *settings: str) -> str:
    """The refusal of a launch, which leaves no run directory behind."""
    with pytest.raises(UserError) as caught:
        prepare(request_run(place.config(*settings)))
    assert not place.run.exists()
    (line,) = str(caught.value).splitlines()
    return line


def test_where_prime_rl_is_has_to_be_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRIME_RL_DIR")
    assert "prime_rl_dir: Prime-RL is not found; clone " in refusal(place)
    assert "no checkout of Prime-RL (no such directory)" in refusal(place, "prime_rl_dir=nowhere")
    empty = place.root / "empty"
    empty.mkdir()
    line = refusal(place, f"prime_rl_dir={empty}")
    assert "no checkout of Prime-RL (no packages/prime-rl-configs/src in it)" in line
    (place.checkout / ".venv/bin/rl").unlink()
    line = refusal(place, f"prime_rl_dir={place.checkout}")
    assert line.endswith("(no .venv/bin/rl); run `uv sync --all-extras` there")


def test_the_pair_of_commits_is_compared(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    verifiers = place.checkout / "deps" / "verifiers"
    verifiers.mkdir(parents=True)
    git(verifiers, "init", "--quiet")
    git(verifiers, "commit", "--quiet", "--allow-empty", "-m", "one")
    git(place.checkout, "-c", "advice.addEmbeddedRepo=false", "add", "deps/verifiers")
    git(place.checkout, "commit", "--quiet", "-m", "pinned")
    found = find_checkout(place.config())
    assert found.verifiers == found.pinned_verifiers == git(verifiers, "rev-parse", "HEAD")[:7]
    (warning,) = commit_warnings(found)
    assert f"at {found.commit}: tbtui knows 559b447 with verifiers a60a606" in warning
    monkeypatch.setattr(checkouts, "KNOWN_PAIRS", {found.commit: found.verifiers})
    assert list(commit_warnings(found)) == []
    git(verifiers, "commit", "--quiet", "--allow-empty", "-m", "two")
    (warning,) = commit_warnings(find_checkout(place.config()))
    assert "git submodule update --init --recursive" in warning
    shutil.rmtree(place.checkout / ".git")
    (warning,) = commit_warnings(find_checkout(place.config()))
    assert "Git does not know its commit" in warning


def test_a_port_that_is_taken_is_named_with_its_owner(place: Place) -> None:
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen()
        toml = a_file(place.tasks)
        toml["inference"]["server"]["port"] = port = listener.getsockname()[1]
        toml["orchestrator"]["model"]["client"]["base_url"] = f"http://localhost:{port}/v1"
        write_file(place.file, toml)
        line = refusal(place)
    assert line.startswith(f"port {port}: taken by ")
    assert "set inference.server.port in a file" in line


def test_the_orchestrator_has_to_ask_the_server_that_is_started(place: Place) -> None:
    toml = a_file(place.tasks)
    del toml["orchestrator"]["model"]
    write_file(place.file, toml)
    line = refusal(place)
    assert ": the orchestrator asks port 8000; set orchestrator.model.client.base_url" in line


def facts(**deployment: int) -> Facts:
    return Facts.of({"inference": {}, "deployment": deployment})


def test_gpus_are_counted_as_prime_rl_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    found = LocalGpus(problem="no NVIDIA driver answers (x)")
    monkeypatch.setattr("tbtui.engines.prime_rl.launch.preflight.local_gpus", lambda: found)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    none = PreflightFinding("error", "GPUs: 2 wanted, none found: no NVIDIA driver answers (x)")
    assert gpus(facts()) == [none]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,")
    assert [finding.level for finding in gpus(facts())] == ["ok", "warning"]
    (few,) = gpus(facts(num_train_gpus=2))
    assert few.text.startswith(
        "GPUs: 3 wanted (2 to train, 1 to sample), 2 in CUDA_VISIBLE_DEVICES=3,5,;"
    )
    busy = GpuMeasured(index=1, name="H100", memory_used_mib=70_000, memory_total_mib=80_000)
    found = LocalGpus((GpuMeasured(index=0, name="H100"), busy))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert gpus(facts())[1:] == [
        PreflightFinding("warning", "GPU 1: 70000 of 80000 MiB are in use; Prime-RL may run out")
    ]


def test_slurm_needs_a_place_to_submit_from(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(place.file, {**a_file(place.tasks), "slurm": {}})
    monkeypatch.setenv("PATH", "/nowhere")
    assert refusal(place).startswith("slurm: sbatch is not found; start this on a login node")


def test_tasks_that_are_not_there(place: Place) -> None:
    toml = a_file(Path("tasks"))
    write_file(place.file, toml)
    line = refusal(place)
    assert line.startswith(f"tasks_dir=tasks: there is no {place.checkout}/tasks (relative paths")


def test_settings_beside_a_file_are_refused_with_its_key(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"is taken as it is; set trainer\.optim\.lr there"):
        request_run(place.config("learning_rate=1e-5"))
    with pytest.raises(ConfigError, match="only for engine=prime-rl"):
        request_run(parse_settings(["num_train_gpus=2"]))


def test_a_new_run_cant_go_on_from_a_checkpoint_of_its_own(place: Place) -> None:
    write_file(place.file, {**a_file(place.tasks), "resume": {"step": 40}})
    line = refusal(place)
    assert line.startswith("resume: a new run has no checkpoints of its own; give resume.dir")
    assert '".../checkpoints/step_40"' in line


def broken(directory: Path, **programs: str) -> Path:
    for name, text in programs.items():
        program(directory / ".venv" / "bin" / name, text)
    return directory


async def test_what_its_own_environment_answers(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By this Python, with stand-ins for the classes and the plugin."""
    checkout = make_checkout(tmp_path / "other")
    monkeypatch.setenv("PRIME_RL_DIR", str(checkout))
    (checkout / "modules" / "tbtui_harbor.py").write_text("import no_such_module\n")
    write_file(place.file, {**a_file(place.tasks), "max_steps": "many"})
    findings = await check_launch(place.config())
    errors = [finding.text for finding in findings if finding.level == "error"]
    assert len(errors) == 2
    assert "ModuleNotFoundError: No module named 'no_such_module'; run `uv pip install" in errors[0]
    assert errors[1].startswith("configuration: Prime-RL refuses it: max_steps: Input should be")


def asked(place: Place, **programs: str) -> list[str]:
    broken(place.checkout, **programs)
    return [finding.text for finding in asyncio.run(check_launch(place.config()))]


def test_a_model_without_a_renderer(place: Place) -> None:
    error = """[[["orchestrator"], "orchestrator.renderer.name='auto' but 'x' is not in ..."]]"""
    text = f"""#!/bin/sh
case "$2" in
*tbtui_harbor*) echo '{{"tbtui": "0", "verifiers": null}}' ;;
*) cat > /dev/null; cat <<'END'
{error}
END
;;
esac
"""
    told = asked(place, python=text)
    assert any(
        line.startswith("renderer: Prime-RL chooses none for Qwen/Qwen3-4B by itself;")
        for line in told
    )
    assert any("plugin: tbtui 0 is installed there, this is " in line for line in told)


def test_the_launchers_own_dry_run_writes_nothing_into_the_run(place: Place) -> None:
    told = asked(place, rl='#!/bin/sh\necho "$@" > asked\ncat "$2" > given\n')
    assert told[-1] == "dry run: passed"
    assert "--dry-run" in (place.checkout / "asked").read_text()
    assert str(place.run) not in (place.checkout / "given").read_text().partition("[")[0]
    assert not place.run.exists()
    told = asked(place, rl="#!/bin/sh\necho 'ValueError: no' >&2; exit 1\n")
    assert told[-1] == "dry run: Prime-RL's launcher refuses the file: ValueError: no"


@pytest.mark.parametrize(
    ("toml", "ports", "urls"),
    [
        ({}, [], ["http://localhost:8000"]),
        (
            {"inference": {}},
            [
                ("inference.server.port", 8000),
                ("inference.backend_port", 8100),
                ("weight_broadcast.port", 29501),
            ],
            ["http://localhost:8100"],
        ),
        (
            {"inference": {"server": {"port": 9000}, "router": "None"}, "slurm": {}},
            [],
            [],
        ),
        (
            {
                "inference": {"server": {"port": 9000, "host": "0.0.0.0"}, "router": "None"},
                "trainer": {"model": {"lora": {}}},
                "orchestrator": {"train": {"source": [{}, {"serve": {"address": "tcp://a:1"}}]}},
            },
            [("inference.server.port", 9000), ("orchestrator.env_server_base_port", 5000)],
            ["http://localhost:9000"],
        ),
        (
            {"orchestrator": {"model": {"client": {"base_url": "http://gpu1:7000/v1"}}}},
            [],
            ["http://gpu1:7000"],
        ),
    ],
)
def test_ports_and_servers_of_a_file(
    toml: dict[str, Any], ports: list[tuple[str, int]], urls: list[str]
) -> None:
    found = Facts.of(toml)
    assert list(found.ports) == ports
    assert list(found.server_urls) == urls
