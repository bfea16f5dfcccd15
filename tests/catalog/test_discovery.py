"""Which tasks a directory holds, what is wrong with the broken ones, and that it is fast."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tbtui import resources
from tbtui.catalog.load import DEFAULT_AGENT_TIMEOUT_SEC, Defect
from tbtui.catalog.tasks import CatalogError, discover
from tests.catalog.task_writer import Files, WriteTask

FULL_TOML = """
schema_version = "1.4"
[task]
name = "acme/sort-names"
keywords = ["ignored", "when", "tagged"]
[metadata]
difficulty = "easy"
category = "shell"
kind = "sort"
tags = ["sort", "text"]
split = "heldout"
[agent]
timeout_sec = 300
[verifier]
timeout_sec = 42.5
[environment]
network_mode = "no-network"
"""


def messages(defects: tuple[Defect, ...]) -> list[tuple[str, int | None, str]]:
    return [(defect.path.name, defect.line, defect.message) for defect in defects]


def test_a_task_and_its_properties(write_task: WriteTask, tmp_path: Path) -> None:
    path = write_task(
        "sort-names", toml=FULL_TOML, files={"instruction.md": "# canary x\n\nSort.\n"}
    )
    catalog = discover(tmp_path)
    assert catalog.defects == ()
    (task,) = catalog.require_tasks()
    assert (task.name, task.path, task.dataset) == ("sort-names", path, tmp_path.name)
    assert task.instruction == "Sort.\n"
    assert (task.difficulty, task.category, task.kind) == ("easy", "shell", "sort")
    assert (task.tags, task.split) == (("sort", "text"), "heldout")
    assert (task.agent_timeout_sec, task.verifier_timeout_sec) == (300.0, 42.5)
    assert not task.allows_network
    assert task.has_solution
    assert task.steps == ()


def test_defaults(write_task: WriteTask, tmp_path: Path) -> None:
    write_task("plain", files={"solution/solve.sh": None})
    (task,) = discover(tmp_path).tasks
    assert (task.difficulty, task.category, task.kind, task.tags) == (None, None, None, ())
    assert task.split is None
    assert task.agent_timeout_sec == DEFAULT_AGENT_TIMEOUT_SEC
    assert task.allows_network
    assert not task.has_solution


def test_datasets_in_a_directory_and_a_single_task(write_task: WriteTask, tmp_path: Path) -> None:
    for dataset, name in (("b", "two"), ("b", "one"), ("a", "three")):
        write_task(name, root=tmp_path / dataset)
    write_task("zero")
    write_task("buried", root=tmp_path / "a" / "deeper" / "still")
    write_task("inner", root=tmp_path / "zero" / "environment")  # belongs to its task
    for passed_over in (".git", "node_modules", "a/.venv"):
        write_task("none", root=tmp_path / passed_over)
    (tmp_path / "README.md").write_text("no task")
    catalog = discover(tmp_path)
    assert [(task.dataset, task.name) for task in catalog.tasks] == [
        ("a", "three"),
        ("a/deeper/still", "buried"),
        ("b", "one"),
        ("b", "two"),
        (tmp_path.name, "zero"),
    ]
    assert catalog.datasets == (("a", 1), ("a/deeper/still", 1), ("b", 2), (tmp_path.name, 1))
    assert catalog.where == (
        f"5 tasks in {tmp_path}: 2 in b, 1 in a, 1 in a/deeper/still, 1 in {tmp_path.name}"
    )
    (single,) = discover(tmp_path / "b" / "one").tasks
    assert (single.dataset, single.name) == ("one", "one")


def test_links_to_directories(write_task: WriteTask, tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_task("here", root=root / "own")
    write_task("there", root=tmp_path / "elsewhere")
    (root / "a-second-way").symlink_to(root / "own")
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    (root / "own" / "back").symlink_to(tmp_path)
    (root / "own" / "cycle").symlink_to("cycle")
    found = [(task.dataset, task.name) for task in discover(root).tasks]
    assert found == [("linked", "there"), ("own", "here")]


def test_a_name_of_two_data_sets_is_known_by_both(write_task: WriteTask, tmp_path: Path) -> None:
    for place in ("2.0/tasks", "2.1/tasks"):
        write_task("same", root=tmp_path / place)
    write_task("broken", root=tmp_path / "2.0/tasks", toml="[")
    write_task("broken", root=tmp_path / "2.1/tasks")
    write_task("single", root=tmp_path / "2.1/tasks")
    catalog = discover(tmp_path)
    assert [(task.name, task.dataset, task.short_name) for task in catalog.tasks] == [
        ("2.0/tasks/same", "2.0/tasks", "same"),
        ("2.1/tasks/broken", "2.1/tasks", "broken"),
        ("2.1/tasks/same", "2.1/tasks", "same"),
        ("single", "2.1/tasks", "single"),
    ]
    assert [defect.task for defect in catalog.defects] == ["2.0/tasks/broken"]
    assert catalog.task("single").full_name == "2.1/tasks/single"
    assert catalog.task("2.0/tasks/same").path == tmp_path / "2.0/tasks/same"
    with pytest.raises(CatalogError, match=r"give 2\.0/tasks/same or 2\.1/tasks/same"):
        catalog.task("same")


def test_a_data_set_called_as_the_directory_around_it(
    write_task: WriteTask, tmp_path: Path
) -> None:
    write_task("same", root=tmp_path / "tasks")
    write_task("same", root=tmp_path / "tasks" / "tasks")
    names = [task.name for task in discover(tmp_path / "tasks").tasks]
    assert names == ["./same", "tasks/same"]


def test_tasks_in_the_old_format(write_task: WriteTask, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_task(
            name,
            toml=None,
            root=tmp_path / "old",
            files={"task.yaml": "instruction: x\n", "run-tests.sh": "", "instruction.md": None},
        )
    command = f"harbor task migrate -i {tmp_path}/old -o {tmp_path}/old-harbor --cpus 1 --memory-mb"
    with pytest.raises(CatalogError, match=f"2 tasks in .* old format .*`{command} 2048`"):
        discover(tmp_path)
    with pytest.raises(CatalogError, match=r"it is a task in .*migrate -i .*/old/one -o"):
        discover(tmp_path / "old" / "one")
    write_task("new")
    catalog = discover(tmp_path)
    assert (catalog.found, len(catalog.tasks), catalog.defects) == (1, 1, ())
    (note,) = catalog.notes
    assert command in note


def test_what_a_directory_without_tasks_holds_instead(tmp_path: Path) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    for name in ("a.py", "b.py", "deep/README"):
        (tmp_path / "src" / name).write_text("")
    with pytest.raises(CatalogError) as caught:
        discover(tmp_path)
    assert str(caught.value) == (
        f"no tasks in {tmp_path}: looked for task.toml (Harbor's format) in it and the 2"
        " directories below it; files there are 2 .py, 1 README"
        " (set tasks_dir to a directory of tasks)"
    )


def test_steps(write_task: WriteTask, tmp_path: Path) -> None:
    toml = (
        '[[steps]]\nname = "first"\n[steps.agent]\ntimeout_sec = 70\n[[steps]]\nname = "second"\n'
    )
    write_task(
        "stepped",
        toml=toml,
        files={
            "instruction.md": None,
            "steps/first/instruction.md": "Begin.",
            "steps/second/instruction.md": "End.",
        },
    )
    (task,) = discover(tmp_path).tasks
    assert task.steps == ("first", "second")
    assert task.instruction == "Begin.\n\nEnd."
    assert task.agent_timeout_sec == 70


def test_every_defect_is_reported_and_the_others_still_run(
    write_task: WriteTask, tmp_path: Path
) -> None:
    write_task("good")
    write_task(
        "worst",
        toml='[agent]\ntimeout_sec = "soon"\n\n[verifier]\nenvironment_mode = "apart"\n',
        files={
            "instruction.md": b"\xff\xfe",
            "environment/Dockerfile": None,
            "tests/test.sh": None,
        },
    )
    catalog = discover(tmp_path)
    assert [task.name for task in catalog.tasks] == ["good"]
    assert {defect.task for defect in catalog.defects} == {"worst"}
    assert messages(catalog.defects) == [
        (
            "task.toml",
            2,
            "agent.timeout_sec: Input should be a valid number, unable to parse string as a number",
        ),
        ("task.toml", 5, "verifier.environment_mode: Input should be 'shared' or 'separate'"),
        ("instruction.md", None, "not UTF-8 text (byte 0)"),
        ("test.sh", None, "missing tests/test.sh"),
        ("environment", None, "missing environment directory"),
    ]
    assert all(defect.remedy for defect in catalog.defects)


def check_defect(tmp_path: Path, name: str, line: int | None, text: str) -> None:
    """The one task there is can't be used, for this reason among others."""
    catalog = discover(tmp_path)
    assert catalog.tasks == ()
    assert any(
        (defect.path.name, defect.line) == (name, line) and text in defect.message
        for defect in catalog.defects
    ), messages(catalog.defects)
    with pytest.raises(CatalogError, match=r"no usable task in .*tbtui tasks check"):
        catalog.require_tasks()


@pytest.mark.parametrize(
    ("toml", "line", "text"),
    [
        (None, None, "missing task.toml"),
        ("[agent\n", 1, "Expected ']' at the end of a table declaration"),
        ("a = 1\nb =\n", 2, "Invalid value"),
        ("\n[metadata]\nsplit = 'test'\n", 3, "metadata.split is 'test'"),
        ('[task]\nname = "x"\n', 2, "'org/name'"),
        ("[[artifacts]]\nsource='a'\n[[artifacts]]\nsource='../b'\n", 4, "not contain '..'"),
        ("[agent]\ntimeout_sec = 0\n", 2, "agent.timeout_sec is 0"),
        ("[agent]\ntimeout_sec = inf\n", 2, "agent.timeout_sec is inf"),
        ("[agent]\ntimeout_sec = 1e300\n", 2, "agent.timeout_sec is 1e+300"),
        ("[environment]\nbuild_timeout_sec = -inf\n", 2, "environment.build_timeout_sec is -inf"),
        ("[environment]\ncpus = 0\n", 2, "environment.cpus is 0"),
        ("[environment]\ngpus = -1\n", 2, "environment.gpus is -1"),
        (f"[environment]\nstorage_mb = {10**400}\n", 2, "environment.storage_mb is 100000"),
        ('[environment]\nmemory = "infG"\n', None, "beyond any number"),
        ('[environment]\nmemory = "-1G"\n', 1, "memory_mb is -1024"),
        (f"[agent]\ntimeout_sec = {'9' * 5000}\n", None, "can't be read"),
        (
            '[environment.healthcheck]\ncommand = "true"\nretries = -2\n',
            *(3, "environment.healthcheck.retries is -2"),
        ),
        (
            '[[verifier.collect]]\ncommand = "true"\ntimeout_sec = inf\n',
            *(3, "verifier.collect.0.timeout_sec is inf"),
        ),
        ("[verifier]\ntimeout_sec = nan\n", 2, "verifier.timeout_sec is nan"),
        ("[agent]\nuser = 1.5\n", 2, "agent.user: Input should be a valid string, or Input should"),
    ],
)
def test_defects_of_task_toml(
    write_task: WriteTask, tmp_path: Path, toml: str | None, line: int | None, text: str
) -> None:
    write_task("broken", toml=toml)
    check_defect(tmp_path, "task.toml", line, text)


@pytest.mark.parametrize(
    ("files", "name", "text"),
    [
        ({"instruction.md": " \n"}, "instruction.md", "empty"),
        ({"instruction.md": None}, "instruction.md", "missing"),
        (
            {"environment/Dockerfile": None, "environment/x": ""},
            *("environment", "no Dockerfile or docker-compose.yaml"),
        ),
        ({"task.toml": '[environment]\nos = "windows"\n'}, *("test.bat", "missing tests/test.bat")),
    ],
)
def test_defects_of_files(
    write_task: WriteTask, tmp_path: Path, files: Files, name: str, text: str
) -> None:
    write_task("broken", files=files)
    check_defect(tmp_path, name, None, text)


def test_a_broken_task_of_steps_is_not_asked_for_what_it_need_not_have(
    write_task: WriteTask, tmp_path: Path
) -> None:
    files = {"instruction.md": None, "tests/test.sh": None, "steps/a/instruction.md": "A."}
    write_task("stepped", toml="[[steps]\n", files=files)
    assert [defect.path.name for defect in discover(tmp_path).defects] == ["task.toml"]


def test_an_image_or_compose_file_replaces_the_dockerfile(
    write_task: WriteTask, tmp_path: Path
) -> None:
    write_task(
        "image",
        toml='[environment]\ndocker_image = "debian"\n',
        files={"environment/Dockerfile": None},
    )
    write_task(
        "compose",
        files={"environment/Dockerfile": None, "environment/docker-compose.yaml": "services: {}"},
    )
    assert [task.name for task in discover(tmp_path).tasks] == ["compose", "image"]


def test_a_directory_that_is_one_task_is_a_data_set_of_its_own_name(
    write_task: WriteTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_task("alone")
    monkeypatch.chdir(path / "tests")
    for given in (path, Path("..")):
        catalog = discover(given)
        assert [(task.name, task.dataset) for task in catalog.tasks] == [("alone", "alone")]
        assert catalog.where == f"1 task in {path}"


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("tests/passwd", "/etc/passwd"),
        *((f"{tree}out", "/usr") for tree in ("tests/", "solution/")),
    ],
)
def test_links_out_of_the_task(
    write_task: WriteTask, tmp_path: Path, link: str, target: str
) -> None:
    path = write_task("linked")
    (path / "tests" / "inside").symlink_to("test.sh")
    (path / link).symlink_to(target)
    (defect,) = discover(tmp_path).defects
    assert defect.path == path / link
    assert "symbolic link out of the task" in defect.message


@pytest.mark.parametrize(
    "file",
    ["instruction.md", "task.toml", "environment/Dockerfile", "environment/docker-compose.yaml"],
)
def test_no_file_of_the_machine_is_read_through_a_link(
    write_task: WriteTask, tmp_path: Path, file: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password1 = 'x'\n")
    path = write_task("linked", root=tmp_path / "tasks", files={file: None})
    (path / file).parent.mkdir(exist_ok=True)
    (path / file).symlink_to(secret)
    catalog = discover(tmp_path / "tasks")
    assert catalog.tasks == ()
    (defect,) = [each for each in catalog.defects if "symbolic link" in each.message]
    assert defect.path == path / file
    assert "password1" not in str(catalog)


def test_a_file_may_link_to_another_of_its_task(write_task: WriteTask, tmp_path: Path) -> None:
    path = write_task("linked", files={"instruction.md": None, "docs/text.md": "Do it.\n"})
    (path / "instruction.md").symlink_to("docs/text.md")
    (task,) = discover(tmp_path).tasks
    assert task.instruction == "Do it.\n"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("missing", "does not exist"), ("file", "is not a directory"), ("empty", "no tasks in")],
)
def test_unusable_directories(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty" / "sub").mkdir(parents=True)
    with pytest.raises(CatalogError, match=reason) as caught:
        discover(tmp_path / name)
    assert "tasks_dir" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.uid
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_directories(write_task: WriteTask, tmp_path: Path) -> None:
    write_task("open")
    closed = write_task("closed")
    closed.chmod(0)
    try:
        catalog = discover(tmp_path)
        with pytest.raises(CatalogError, match="is not readable"):
            discover(closed)
    finally:
        closed.chmod(0o755)
    assert [task.name for task in catalog.tasks] == ["open"]
    assert [defect.message for defect in catalog.defects] == ["the directory is not readable"]


def test_a_task_by_name(write_task: WriteTask, tmp_path: Path) -> None:
    write_task("copy-file")
    catalog = discover(tmp_path)
    assert catalog.task("copy-file").name == "copy-file"
    with pytest.raises(CatalogError, match="did you mean 'copy-file'"):
        catalog.task("copyfile")


def test_discovery_imports_of_harbor_its_task_model_alone(
    write_task: WriteTask, tmp_path: Path
) -> None:
    """The rest of Harbor takes seconds, and trials alone need it."""
    for number in range(3):
        write_task(f"task-{number}")
    code = (
        "import sys; from pathlib import Path; from tbtui.catalog.report import task_rows\n"
        "from tbtui.catalog.tasks import discover\n"
        f"assert len(discover(Path({str(tmp_path)!r})).tasks) == 3\n"
        "assert not {'litellm', 'textual', 'harbor.trial', 'harbor.agents', 'harbor.environments'}"
        " & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def load_resources(package: Path) -> ModuleType:
    """`tbtui.resources`, as if the package lay at `package`."""
    package.mkdir(parents=True)
    copy = shutil.copy(str(resources.__file__), package / "resources.py")
    spec = importlib.util.spec_from_file_location("resources_elsewhere", copy)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_bundled_directories_of_an_installed_wheel(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "tbtui"
    installed = load_resources(package)
    (tmp_path / "site-packages" / "tasks").mkdir()  # some other project's
    with pytest.raises(FileNotFoundError, match="reinstall tbtui"):
        installed.tasks_dir()
    (package / "bundled" / "tasks").mkdir(parents=True)
    assert installed.tasks_dir() == package / "bundled" / "tasks"
