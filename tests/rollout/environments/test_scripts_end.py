"""Test scripts run by a box's first process: how they end, and whether their files were changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from harbor.utils.scripts import build_execution_command

from tbtui.rollout.environments.base import ScriptEnd, ScriptRun, script_run
from tbtui.rollout.environments.box import Box
from tbtui.rollout.environments.upload import changed_file, upload_tree
from tbtui.rollout.environments.userland import BASE_ENVIRONMENT
from tests.rollout.environments.boxes import STARTERS, processes_of, running_box, sh

pytestmark = pytest.mark.uid

SCRIPT, OUTPUT = "/tests/test.sh", "/tmp/output"


@pytest_asyncio.fixture(params=STARTERS)
async def box(request: pytest.FixtureRequest) -> AsyncIterator[Box]:
    async with running_box(request.param) as running:
        yield running


def make_tests(folder: Path, script: str) -> Path:
    tests = folder / "tests"
    (tests / "sub").mkdir(parents=True)
    (tests / "test.sh").write_text(script)
    (tests / "test.sh").chmod(0o755)
    (tests / "sub" / "data").write_bytes(bytes(range(256)) * 5000)
    (tests / "sub" / "link").symlink_to("data")
    return tests


async def run(box: Box, folder: Path, script: str) -> tuple[int, ScriptEnd, str]:
    await upload_tree(box, make_tests(folder, script), "/tests")
    status, end = await box.run_script(
        SCRIPT, OUTPUT, environment=BASE_ENVIRONMENT, cwd="/gone", timeout_sec=60
    )
    # Whether the kernel has killed something for memory meanwhile is the whole machine's doing.
    end = replace(end, memory=False)
    return status, end, (await sh(box, f"cat {OUTPUT}")).stdout


def test_harbors_command_is_recognised() -> None:
    command = build_execution_command(SCRIPT, OUTPUT, task_os=None)
    assert script_run(command) == ScriptRun(SCRIPT, OUTPUT)
    assert script_run("echo (/tests/test.sh)") is None


async def test_an_end_of_its_own(box: Box, tmp_path: Path) -> None:
    script = "#!/bin/bash\npwd; echo said; echo too >&2; exit 137\n"
    status, end, said = await run(box, tmp_path, script)
    assert (status, end) == (137, ScriptEnd())
    assert said == "/\nsaid\ntoo\n"  # in the place of /gone


@pytest.mark.parametrize("number", [9, 15])
async def test_a_signal(box: Box, tmp_path: Path, number: int) -> None:
    status, end, _ = await run(box, tmp_path, f"#!/bin/bash\nkill -{number} $$; sleep 60\n")
    assert (status, end.signal) == (128 + number, number)


async def test_a_script_without_an_interpreter_line_is_the_shells(box: Box, tmp_path: Path) -> None:
    status, end, said = await run(box, tmp_path, 'x=(1 2); echo "${x[1]}"\n')
    assert (status, end, said) == (0, ScriptEnd(), "2\n")


async def test_a_script_that_can_not_start(box: Box, tmp_path: Path) -> None:
    status, end, _ = await run(box, tmp_path, "#!/no/such/interpreter\n")
    assert (status, end.signal) == (127, 0)
    assert end.not_started == "/tests/test.sh: no interpreter for it"


async def test_its_output_goes_through_no_link(box: Box, tmp_path: Path) -> None:
    await sh(box, f"ln -s /etc/passwd {OUTPUT}")
    _, end, said = await run(box, tmp_path, "#!/bin/bash\necho said\n")
    assert end.not_started.startswith(OUTPUT)
    assert "root:" in said


@pytest.mark.parametrize(
    "change",
    [
        "echo >> /tests/test.sh",
        "sed -i s/true/echo/ /tests/test.sh",
        "rm /tests/test.sh",
        "mv /tests/test.sh /tests/x; mkfifo /tests/test.sh",
        "cp /tests/test.sh /tests/x; ln -sf x /tests/test.sh",
        "printf x | dd of=/tests/sub/data bs=1 seek=1000000 conv=notrunc",
        "ln -sf /etc/passwd /tests/sub/link",
        "rm -rf /tests; touch /tests",
    ],
)
async def test_a_changed_file_is_found(tmp_path: Path, change: str) -> None:
    tests = make_tests(tmp_path, "#!/bin/bash\ntrue\n")
    async with running_box() as box:
        await upload_tree(box, tests, "/tests")
        await box.make_executable(SCRIPT)
        await sh(box, "mkdir /tests/__pycache__; touch /tests/conftest.py; chmod -R a+rwx /tests")
        assert await changed_file(box, [tests], "/tests") is None
        await sh(box, change)
        assert (await changed_file(box, [tests], "/tests") or "").startswith("/tests/")


async def test_a_later_upload_counts(box: Box, tmp_path: Path) -> None:
    first, second = make_tests(tmp_path / "1", "true\n"), make_tests(tmp_path / "2", "false\n")
    for tests in (first, second):
        await upload_tree(box, tests, "/tests")
    assert await changed_file(box, [first, second], "/tests") is None
    assert await changed_file(box, [second, first], "/tests") == SCRIPT


async def test_all_processes_are_ended(box: Box) -> None:
    await sh(box, "for i in 1 2 3; do (setsid nohup sleep 600 > /dev/null 2>&1 &); done")
    await sh(box, "trap '' TERM HUP; (sleep 600 & kill -STOP $!; wait) > /dev/null 2>&1 &")
    assert len(processes_of(box)) > 3
    await box.end_processes()
    assert processes_of(box) == [box.init_pid]
    assert (await sh(box, "echo alive")).stdout == "alive\n"


async def test_room(box: Box) -> None:
    free, files = await box.room()
    assert free > 1 << 20
    assert files > 100
    await sh(box, "head -c 1G /dev/zero > /tmp/1; head -c 1G /dev/zero > /tmp/2")
    assert (await box.room())[0] < 1 << 20


async def test_a_working_directory_that_is_gone(box: Box) -> None:
    result = await box.run(["pwd"], environment=BASE_ENVIRONMENT, cwd="/gone", may_be_gone=True)
    assert result.stdout == "/\n"
    refused = await box.run(["pwd"], environment=BASE_ENVIRONMENT, cwd="/gone")
    assert refused.exit_code == 126
