"""GPUs of this machine and of others, in the journal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from tbtui.commands import doctor
from tbtui.config import to_toml
from tbtui.engines.gpus import GpuMonitor, UnreadableError, local_gpus, read_table, remote_gpus
from tbtui.engines.monitor import Monitor
from tbtui.engines.run import Run
from tbtui.journal.database import JournalError
from tbtui.journal.events import AnyEvent, GpusMeasured, ResourcesMeasured
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter

from .fakes import FakePool
from .stand_in_nvml import Device, NVMLError_GpuIsLost, NVMLError_NotSupported, stand_in_nvml
from .test_monitor import STATUS
from .test_resume import LearningPolicy, Whole, by_what_it_says

# As nvidia-smi prints it; the login shell of the machine says something first.
TABLE = """\
Welcome to node-1
0, NVIDIA H100 80GB HBM3, 97, 72704, 81559, 612.35, 64
1, NVIDIA H100 80GB HBM3, 0, 4, 81559, [N/A], 31
"""


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Device]]:
    def install(*devices: Device, without_driver: bool = False) -> list[Device]:
        changing = list(devices)
        monkeypatch.setitem(sys.modules, "pynvml", stand_in_nvml(changing, without_driver))
        return changing

    return install


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a stand-in for ssh on PATH; returns the file with the arguments it was given."""

    def install(script: str) -> Path:
        program, told = tmp_path / "bin" / "ssh", tmp_path / "arguments"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >> {told}\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return told

    return install


def without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # type: ignore[arg-type]


def test_what_a_gpu_tells_is_told_in_its_units(nvml: Callable[..., list[Device]]) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        nvml(Device(use=97, used=71 << 30, milliwatts=612_350, temperature=64, pids=[child.pid, 1]))
        (gpu,) = local_gpus().gpus
    finally:
        child.kill()
        child.wait()
    assert (gpu.index, gpu.name, gpu.utilisation) == (0, "NVIDIA H100 80GB HBM3", 0.97)
    assert (gpu.memory_used_mib, gpu.memory_total_mib) == (71 * 1024, 80 * 1024)
    assert (gpu.power_watt, gpu.temperature_c) == (612, 64)
    assert (gpu.processes, gpu.own_processes) == (2, 1)


def test_what_a_gpu_does_not_tell_is_unknown_and_the_rest_known(
    nvml: Callable[..., list[Device]],
) -> None:
    no = NVMLError_NotSupported()
    nvml(Device(name=b"NVIDIA GB10", use=no, total=no, milliwatts=no, temperature=40))
    (gpu,) = local_gpus().gpus
    assert (gpu.name, gpu.temperature_c, gpu.problem) == ("NVIDIA GB10", 40, "")
    assert (gpu.utilisation, gpu.memory_used_mib, gpu.power_watt) == (None, None, None)


def test_a_lost_gpu_does_not_take_the_others_with_it(nvml: Callable[..., list[Device]]) -> None:
    nvml(Device(handle=NVMLError_GpuIsLost()), Device(use=NVMLError_GpuIsLost()), Device(use=5))
    found = local_gpus()
    assert [gpu.problem for gpu in found.gpus] == ["GPU is lost", "GPU is lost", ""]
    assert found.gpus[2].utilisation == 0.05
    assert sys.modules["pynvml"].open == 0  # type: ignore[attr-defined]


def gpu_line() -> tuple[str, str, str]:
    finding = doctor._gpu()
    return finding.verdict, finding.found, finding.remedy


def test_doctor_tells_what_there_is_and_what_to_do(
    nvml: Callable[..., list[Device]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    nvml(Device(), Device())
    assert gpu_line() == ("ok", "2 x NVIDIA H100 80GB HBM3; driver 580.65.06", "")
    nvml(without_driver=True)
    verdict, found, _ = gpu_line()
    assert verdict == "optional"
    assert "none found (no NVIDIA driver can be asked (NVML Shared Library Not Found))" in found
    without_nvml(monkeypatch)
    assert gpu_line()[0] == "optional"
    smi = tmp_path / "nvidia-smi"
    smi.touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpu_line()[2] == "uv sync --extra nvidia"


def test_a_table_of_another_machine() -> None:
    busy, idle = read_table(TABLE)
    assert (busy.index, busy.name, busy.utilisation) == (0, "NVIDIA H100 80GB HBM3", 0.97)
    assert (busy.memory_used_mib, busy.memory_total_mib) == (72_704, 81_559)
    assert (busy.power_watt, busy.temperature_c, busy.processes) == (612, 64, None)
    assert (idle.power_watt, idle.temperature_c) == (None, 31)


def test_a_name_may_have_commas_and_values_may_be_missing() -> None:
    (gpu,) = read_table("3, Odd, Inc. GPU, [Not Supported], [N/A], [N/A], nan, [Unknown Error]\n")
    assert (gpu.index, gpu.name) == (3, "Odd, Inc. GPU")
    told = {"index", "name", "shares", "problem"}
    untold = {k: v for k, v in msgspec.structs.asdict(gpu).items() if k not in told}
    assert len(untold) == 7
    assert set(untold.values()) == {None}


@pytest.mark.parametrize("text", ["", "No devices were found\n", "a,b,c,d,e,f,g\n"])
def test_what_is_no_table_is_quoted(text: str) -> None:
    with pytest.raises(UnreadableError, match=text.strip() or "nothing"):
        read_table(text)


async def test_another_machine_is_asked_without_a_question(ssh: Callable[[str], Path]) -> None:
    told = ssh(f"cat <<'EOF'\n{TABLE}EOF")
    measured = await remote_gpus("-node-1")
    assert [gpu.utilisation for gpu in measured.gpus] == [0.97, 0.0]
    arguments = told.read_text().splitlines()
    assert "BatchMode=yes" in arguments
    assert arguments[-3:-1] == ["--", "-node-1"]
    assert arguments[-1].startswith("nvidia-smi --query-gpu=index,name,utilization.gpu,")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'ssh: connect to host n port 22: No route to host' >&2; exit 255", "No route"),
        ("echo 'sh: 1: nvidia-smi: not found' >&2; exit 127", "nvidia-smi: not found"),
        ("echo 'NVIDIA-SMI has failed because it could not'; exit 9", "NVIDIA-SMI has failed"),
        ("exit 3", "ssh ended with status 3"),
        ("echo 'No devices were found'", "nvidia-smi says: No devices were found"),
        ("yes | head -c 1000000 >&2; exit 1", "y"),
        ("printf '%0400d: Permission denied' 0 >&2; exit 255", "000: Permission denied"),
    ],
)
async def test_a_machine_that_can_not_be_asked_is_told_with_the_reason(
    ssh: Callable[[str], Path], script: str, reason: str
) -> None:
    ssh(script)
    measured = await remote_gpus("node-2")
    assert measured.gpus == ()
    assert reason in measured.unreachable


async def test_a_machine_that_never_answers_is_given_up(ssh: Callable[[str], Path]) -> None:
    ssh("exec sleep 60")
    measured = await remote_gpus("node-3", answer_sec=0.1)
    assert measured.unreachable == "no answer through ssh in 0.1 s"


async def test_a_machine_without_ssh_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "No such file" in (await remote_gpus("node-4")).unreachable


async def test_the_journal_gets_what_has_changed_and_only_that(
    nvml: Callable[..., list[Device]], ssh: Callable[[str], Path], tmp_path: Path
) -> None:
    (device,) = nvml(Device(use=10))
    ssh(f"cat <<'EOF'\n{TABLE}EOF")
    directory = RunDirectory.create(tmp_path / "run")
    with contextlib.closing(JournalWriter(directory)) as journal:
        written = asyncio.Queue[AnyEvent]()

        def append(event: AnyEvent) -> None:
            journal.append(event)
            written.put_nowait(event)

        monitor = GpuMonitor(append, ["node-1"], period_sec=0.01, remote_period_sec=0.01)
        task = asyncio.create_task(monitor.run())
        hosts = {(await written.get()).host for _ in range(2)}  # type: ignore[union-attr]
        await asyncio.sleep(0.1)
        assert written.empty()
        device.use = 20
        changed = await written.get()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert isinstance(changed, GpusMeasured)
    assert changed.gpus[0].utilisation == 0.2
    assert "node-1" in hosts
    events = [entry.event for entry in JournalReader(directory).read(0)]
    assert len(events) == 3
    assert changed == events[-1]


@pytest.fixture
def served() -> Iterator[subprocess.Popen[str]]:
    """A process with a child that calls itself as vLLM's engine does."""
    script = (
        "import subprocess, sys;"
        "child = subprocess.Popen(['bash', '-c', 'exec -a VLLM::EngineCore sleep 60']);"
        "print(child.pid, flush=True); child.wait()"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    yield process
    for child in psutil.Process(process.pid).children():
        child.kill()
    process.kill()
    process.wait()


def engine_of(served: subprocess.Popen[str]) -> int:
    """The process id of its child, once that has its name."""
    assert served.stdout is not None
    child = int(served.stdout.readline())
    while not "".join(psutil.Process(child).cmdline()).startswith("VLLM"):
        time.sleep(0.01)
    return child


def test_what_uses_a_gpu_is_known_by_role(
    nvml: Callable[..., list[Device]], served: subprocess.Popen[str]
) -> None:
    engine, trainer, other = engine_of(served), os.getpid(), 1
    (device,) = nvml(
        Device(
            pids=[engine, trainer, other],
            held={engine: 30 << 30, trainer: 9 << 30, other: None},
            process_use={engine: [40, 60], other: [3]},
        )
    )
    roots = [("trainer", trainer), ("vLLM", served.pid)]
    (gpu,) = local_gpus(roots).gpus
    assert [(each.role, each.memory_mib, each.utilisation) for each in gpu.shares] == [
        ("trainer", 9 << 10, 0.0),
        ("vLLM EngineCore", 30 << 10, 0.5),
        ("others", None, 0.03),
    ]
    device.process_use = NVMLError_NotSupported()
    (gpu,) = local_gpus(roots).gpus
    assert [each.utilisation for each in gpu.shares] == [None] * 3
    device.process_use = {}
    (gpu,) = local_gpus(roots).gpus
    assert [each.utilisation for each in gpu.shares] == [0.0] * 3
    device.pids = [other]
    (gpu,) = local_gpus(roots).gpus
    assert not gpu.shares, "in a container the driver has other numbers for ours"


def test_a_server_is_measured_with_what_it_has_started(
    tmp_path: Path, served: subprocess.Popen[str]
) -> None:
    engine_of(served)
    directory = RunDirectory.create(tmp_path / "run")
    with contextlib.closing(JournalWriter(directory)) as journal:
        roots = [("engine", os.getpid()), ("vLLM", served.pid)]
        Monitor(journal, lambda: STATUS, lambda: roots)._measure_processes(0.0)
    (entry,) = JournalReader(directory).read(0)
    assert isinstance(entry.event, ResourcesMeasured)
    sizes = {each.role: each.rss_mb for each in entry.event.processes}
    assert list(sizes) == ["engine", "vLLM", "vLLM EngineCore"]
    assert 0 < sizes["vLLM EngineCore"] < sizes["vLLM"]


async def test_a_run_of_ours_journals_them(
    nvml: Callable[..., list[Device]], ssh: Callable[[str], Path], tmp_path: Path
) -> None:
    nvml(Device(pids=[os.getpid()], held={os.getpid(): 5 << 30}))
    ssh(f"cat <<'EOF'\n{TABLE}EOF")
    run = Whole(RunDirectory.create(tmp_path / "run"), {"gpu_hosts": ("node-1",)}, by_what_it_says)
    run.directory.config.write_text(to_toml(run.config()))

    class SlowPolicy(LearningPolicy):
        async def start(self, resume: Path | None = None) -> None:
            async with asyncio.timeout(30):
                while len(run.events(GpusMeasured)) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await super().start(resume)

    end = await Run(
        run.prepared(),
        lambda config, log: SlowPolicy(),
        lambda prepared, runner: FakePool(runner, run.script),
    ).run()
    assert end.status == "finished"
    counts = {event.host: len(event.gpus) for event in run.events(GpusMeasured)}
    assert counts == {socket.gethostname(): 1, "node-1": 2}
    ours = next(e for e in run.events(GpusMeasured) if e.host == socket.gethostname())
    assert [(each.role, each.memory_mib) for each in ours.gpus[0].shares] == [("engine", 5 << 10)]


async def test_without_gpus_and_hosts_there_is_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_nvml(monkeypatch)
    events: list[AnyEvent] = []
    await GpuMonitor(events.append).run()
    assert events == []


async def test_a_journal_that_can_not_be_written_is_told_as_such(
    nvml: Callable[..., list[Device]],
) -> None:
    nvml(Device())

    def full(event: AnyEvent) -> None:
        raise JournalError("no space left")

    with pytest.raises(JournalError, match="no space left"):
        await GpuMonitor(full).run()
