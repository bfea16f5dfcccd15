"""What a trial leaves on disk: bounded, kept as asked, and readable by Harbor's own viewer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tbtui.journal.events import Outcome
from tbtui.rollout.disk import MAX_FILE_BYTES, MAX_TRIAL_BYTES, MAX_TRIAL_FILES, tidy
from tbtui.rollout.messages import Keep, TrialSpec
from tests.rollout.in_process import Here
from tests.rollout.scripted import DONE, HELLO, ScriptedEngine, act, changed, make_spec
from tests.tasks import make_task


def names(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir()}


def some_trial(folder: Path) -> Path:
    for name in (
        "result.json",
        "config.json",
        "recording.cast",
        "trial.log",
        "agent/trajectory.json",
        "agent/terminal.pane",
        "verifier/reward.txt",
        "verifier/test-stdout.txt",
        "verifier/coverage.xml",
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return folder


RESULTS = {"result.json", "config.json", "verifier/reward.txt", "verifier/test-stdout.txt"}


@pytest.mark.parametrize(
    ("keep", "outcome", "all_of_it"),
    [
        ("all", Outcome.SOLVED, True),
        ("failed", Outcome.SOLVED, False),
        ("failed", Outcome.FAILED, True),
        ("none", Outcome.FAILED, False),
    ],
)
def test_keep(tmp_path: Path, keep: Keep, outcome: Outcome, all_of_it: bool) -> None:
    folder = some_trial(tmp_path / "t")
    everything = names(folder)
    tidy(folder, keep, outcome)
    assert names(folder) == (everything if all_of_it else RESULTS)


def test_only_so_many_files_stay_and_the_trials_own_go_first(tmp_path: Path) -> None:
    folder = some_trial(tmp_path / "t")
    (folder / "trial.log").write_text("what happened")
    many = folder / "artifacts" / "many"
    many.mkdir(parents=True)
    for number in range(MAX_TRIAL_FILES + 10):
        (many / str(number)).touch()
    tidy(folder, "all", Outcome.FAILED)
    files = names(folder)
    assert len(files) == MAX_TRIAL_FILES
    assert files >= {*RESULTS, "trial.log"}


def test_files_are_cut_and_the_largest_go_first(tmp_path: Path) -> None:
    folder = some_trial(tmp_path / "t")
    outside = tmp_path / "outside"
    with outside.open("wb") as file:
        file.truncate(MAX_FILE_BYTES * 2)
    (folder / "agent" / "link").symlink_to(outside)
    for number in range(12):
        with (folder / f"large-{number}").open("wb") as file:
            file.truncate(MAX_FILE_BYTES + number + 1)
    tidy(folder, "all", Outcome.FAILED)
    assert outside.stat().st_size == MAX_FILE_BYTES * 2
    sizes = [p.lstat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink()]
    assert max(sizes) == MAX_FILE_BYTES
    assert sum(sizes) <= MAX_TRIAL_BYTES
    assert (folder / "large-0").read_bytes().endswith(b"bytes were written]\n")
    assert names(folder) >= RESULTS
    assert not (folder / "large-11").exists()


def test_names_that_are_kept_protect_nothing_elsewhere(tmp_path: Path) -> None:
    folder = some_trial(tmp_path / "t")
    planted = [
        "agent/trajectory.bomb",
        "agent/trajectory.cont-9.json",
        "agent/result.json",
        "artifacts/steps/a/lock.json",
        "artifacts/agent/trajectory.json",
        *(f"artifacts/{number}/trajectory.json" for number in range(9)),
    ]
    for name in planted:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("wb") as file:
            file.truncate(MAX_FILE_BYTES + 1)
    own = folder / "steps" / "a" / "agent" / "trajectory.json"
    own.parent.mkdir(parents=True)
    with own.open("wb") as file:
        file.truncate(2 * MAX_FILE_BYTES)
    tidy(folder, "all", Outcome.FAILED)
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    assert own.stat().st_size == max(sizes) == 2 * MAX_FILE_BYTES
    assert sorted(sizes)[-2] == MAX_FILE_BYTES
    assert sum(sizes) <= MAX_TRIAL_BYTES
    assert names(folder) >= RESULTS

    (folder / "artifacts" / "verifier").mkdir(exist_ok=True)
    (folder / "artifacts" / "verifier" / "reward.txt").write_text("1")
    tidy(folder, "none", Outcome.FAILED)
    assert names(folder) == RESULTS


@pytest.mark.starves
@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_a_gigabyte_of_output(engine: ScriptedEngine, spec: TrialSpec) -> None:
    loud = act("yes | head -c 1G\n", duration=3.0)
    facts = await engine.run(spec, [HELLO, loud, act("C-c"), DONE, DONE])
    assert (facts.finish, facts.verdict) == ("completed", 1.0)
    folder = spec.trials_dir / spec.trial
    sizes = {p.name: p.stat().st_size for p in folder.rglob("*") if p.is_file()}
    assert max(sizes.values()) <= MAX_FILE_BYTES + 1000
    assert sum(sizes.values()) <= MAX_TRIAL_BYTES
    last = (folder / "recording.cast").read_text().splitlines()[-1]
    assert json.loads(last)  # whole, however it ended


@pytest.mark.asyncio(loop_scope="session")
async def test_a_solved_trial_can_leave_its_verdict_only(
    engine: ScriptedEngine, spec: TrialSpec
) -> None:
    await engine.run(changed(spec, keep="failed"), [HELLO, DONE, DONE])
    left = names(spec.trials_dir / spec.trial)
    assert {"result.json", "verifier/test-stdout.txt", "verifier/reward.txt"} <= left
    assert left <= RESULTS | {"lock.json"}


@pytest.mark.asyncio(loop_scope="session")
async def test_harbors_viewer_reads_it(engine: ScriptedEngine, spec: TrialSpec) -> None:
    from harbor.models.trajectories import Trajectory
    from harbor.viewer.scanner import JobScanner

    await engine.run(spec, [HELLO, "not readable", DONE, DONE])
    jobs = spec.trials_dir.parent
    scanner = JobScanner(jobs)
    assert scanner.list_trials(spec.trials_dir.name) == [spec.trial]
    result = scanner.get_trial_result(spec.trials_dir.name, spec.trial)
    config = scanner.get_trial_config(spec.trials_dir.name, spec.trial)
    assert result is not None
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 1.0}
    assert result.exception_info is None
    assert config is not None
    assert config.trial_name == spec.trial
    text = (spec.trials_dir / spec.trial / "agent" / "trajectory.json").read_text()
    trajectory = Trajectory.model_validate_json(text)
    assert [step.source for step in trajectory.steps] == ["user", *["agent"] * 4]


@pytest.mark.slow
async def test_no_digest_of_a_task_reads_what_lies_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "again").symlink_to(outside)
    task = make_task(tmp_path / "task")
    (task / "environment" / "directory").symlink_to(outside)
    (task / "environment" / "file").symlink_to(outside / "file")
    digests: list[tuple[str, str]] = []
    for text in "12":
        (outside / "file").write_text(text)
        spec = make_spec(text, task, tmp_path, agent="untouched")
        assert (await Here(spec, []).facts()).verdict == 0.0
        folder = spec.trials_dir / spec.trial
        result, lock = (json.loads((folder / f"{n}.json").read_text()) for n in ("result", "lock"))
        digests.append((result["task_checksum"], lock["task"]["digest"]))
    assert digests[0] == digests[1]
