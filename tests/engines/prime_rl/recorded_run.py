"""Run directories as Prime-RL writes them, small.

No GPU, so no real one: the files are made after its source, prime-rl 559b447 (`monitors/file.py`,
`orchestrator/orchestrator.py`, `trainer/rl/train.py`, `utils/logger.py`, `utils/pathing.py`) with
records of verifiers a60a606.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BEGIN = 1_788_000_000.0
DIM, LEVEL, NORMAL, RESET = "\x1b[2m", "\x1b[32m\x1b[1m", "\x1b[22m", "\x1b[0m"


def node(role: str, content: str, at: float, ids: list[int], before: int, **more: Any) -> Any:
    """A message of a trace; of its tokens `before` are the template's."""
    return {
        "message": {"role": role, "content": content},
        "sampled": role == "assistant",
        "timestamp": at,
        "token_ids": ids,
        "mask": [role == "assistant" and number >= before for number in range(len(ids))],
        "is_content": [number >= before for number in range(len(ids))],
        "logprobs": [],
        **more,
    }


def turn_nodes(turns: int, start: float, tokens: int = 3) -> list[dict[str, Any]]:
    """A system prompt, then a user's message and a sampled answer for each turn."""
    nodes = [node("system", "You use a terminal.", start, [1, 2], 1)]
    for turn in range(turns):
        at, last = start + 10 * (turn + 1), len(nodes) - 1
        screen, command = f"screen {turn + 1}", f"command {turn + 1}"
        nodes.append(node("user", screen, at, [10 + turn, 11], 0, parent=last))
        # The generation prompt, then what was sampled.
        ids = [3, *range(100 * turn, 100 * turn + tokens)]
        logprobs = [-0.5] * (tokens - 1) + [-1.5]
        nodes.append(node("assistant", command, at, ids, 1, logprobs=logprobs, parent=last + 1))
    return nodes


def model_calls(nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "node": index,
            "model": "policy",
            "sampling": {"temperature": 0.7},
            "endpoint": "/chat/completions",
            "finish_reason": "stop",
            "usage": {"prompt_tokens": 6, "completion_tokens": 3, "cached_input_tokens": 2},
            "time": {"start": node["timestamp"] - 4, "end": node["timestamp"]},
        }
        for index, node in enumerate(nodes)
        if node["sampled"]
    ]


class RecordedRun:
    """Writes a run bit by bit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.attempt = 0
        path.mkdir(parents=True)

    # What the launcher does

    def launch(self, max_steps: int = 2) -> None:
        """The configuration, and a directory of logs for this attempt."""
        config = {
            "run": {"name": self.path.name},
            "model": {"name": "Qwen/Qwen3-4B"},
            "max_steps": max_steps,
            "seq_len": 32768,
            "orchestrator": {
                "batch_size": 4,
                "group_size": 2,
                "eval": {"group_size": 2, "sampling": {"temperature": 0.5}},
                "train": {"source": [{"env": {"taskset": {"id": "tb", "tasks_dir": "/tasks"}}}]},
            },
            "inference": {"vllm": {"max_model_len": 16384}},
        }
        configs = self.path / "configs"
        configs.mkdir(parents=True, exist_ok=True)
        (configs / "rl.json").write_text(json.dumps(config, indent=2))
        self.attempt += 1
        logs = self.path / "logs"
        (logs / f"attempt_{self.attempt}").mkdir(parents=True)
        (logs / ".new").symlink_to(f"attempt_{self.attempt}")
        (logs / ".new").rename(logs / "latest")

    def harness(self, trials_dir: Path | None) -> None:
        """The environment servers run our plugin, if there is a directory for its trials."""
        if trials_dir is None:
            return
        (file,) = (self.path / "configs").rglob("rl.json")
        config = json.loads(file.read_text())
        (source,) = config["orchestrator"]["train"]["source"]
        source["env"]["agent"] = {"harness": {"trials_dir": str(trials_dir)}}
        file.write_text(json.dumps(config))

    def log(self, part: str, level: str, text: str) -> None:
        line = f"{DIM}12:00:00{RESET} {LEVEL}{level: >7}{RESET} {LEVEL}{NORMAL}{text}{RESET}\n"
        prefix = "[default0]:" if part == "trainer" else ""
        self.raw(part, prefix + line)

    def raw(self, part: str, text: str) -> None:
        path = self.path / "logs" / f"attempt_{self.attempt}" / f"{part}.log"
        with path.open("a") as file:
            file.write(text)

    def ready(self, resumed: int | None = None) -> None:
        """Every part has started."""
        origin = (
            "Training from scratch"
            if resumed is None
            else f"Resuming orchestrator from checkpoint step {resumed}"
        )
        self.raw("inference", "(APIServer pid=7) INFO 08-22 12:00:00 [api.py:1] Starting vLLM\n")
        self.log("orchestrator", "SUCCESS", "Policy inference pool ready")
        self.log("orchestrator", "INFO", origin)
        self.log("trainer", "INFO", "Starting training loop (max_steps=2)")
        self.log("orchestrator", "INFO", "Starting orchestrator loop (max_steps=2)")

    # What the orchestrator does

    def episode(
        self,
        name: str,
        step: int,
        *,
        group: str = "g1",
        task: str = "copy-file",
        reward: float | None = 1.0,
        error: tuple[str, str] | None = None,
        turns: int = 2,
        kind: str = "train",
        stop: str = "agent_completed",
        traces: bool = True,
        start: float = BEGIN,
        version: int = 0,
    ) -> dict[str, Any]:
        """The record of an episode with one trace of the id `name`."""
        nodes = turn_nodes(turns, start)
        failed = [] if error is None else [{"type": error[0], "message": error[1]}]
        end = start + 10 * turns
        trace = {
            "version": 1,
            "id": name,
            "verifiers": {"version": "0.4.0"},
            "task": {"type": "Task", "data": {"name": task, "idx": 3}, "key": "k", "hash": "h"},
            "agent": {"config": {}, "name": "agent", "trainable": True},
            "nodes": nodes,
            "calls": model_calls(nodes),
            "rewards": {} if reward is None else {"solved": {"score": reward, "weight": 1.0}},
            "metrics": {},
            "info": {},
            "is_completed": True,
            "ok": error is None,
            "stop_condition": "error" if error else stop,
            "errors": failed,
            "timing": {
                "start": start,
                "boot": {"start": start + 1, "end": start + 3},
                "setup": {"start": start + 3, "end": start + 5},
                "agent": {
                    "start": start + 5,
                    "end": end,
                    "model": {"duration": 4.0 * turns},
                    "harness": {"duration": 1.0},
                },
                "finalize": {"start": end, "end": end},
                "scoring": {"start": end, "end": end + 2},
            },
        }
        return {
            "id": f"episode-{name}",
            "env": {"id": "tb-harbor", "name": "tb"},
            "task": trace["task"],
            "group": {"id": group},
            "run": {
                "type": "train",
                "id": "r",
                "work": {
                    "type": kind,
                    "step": step,
                    "policy": {"start": version, "end": version},
                },
            },
            "ok": error is None,
            "errors": failed if not traces else [],
            "traces": [trace] if traces else [],
        }

    def arrived(self, episode: dict[str, Any], step: int) -> None:
        kind = episode["run"]["work"]["type"]
        append(self.path / "rollouts" / f"step_{step}" / kind / "all" / "traces.jsonl", episode)

    def shipped(self, episodes: Sequence[dict[str, Any]], step: int, advantage: float) -> None:
        """The batch's episodes, the first half of them with `advantage`, the rest with less."""
        for number, episode in enumerate(episodes):
            given = advantage if number < len(episodes) / 2 else -advantage
            traces = [{**t, "info": {**t["info"], "advantage": given}} for t in episode["traces"]]
            path = self.path / "rollouts" / f"step_{step}" / "train/effective/traces.jsonl"
            append(path, {**episode, "traces": traces})

    def orchestrator_row(self, step: int, reward: float = 0.5, **more: float) -> None:
        agent = "train/agg/effective/agent"
        self._row(
            step,
            {
                f"{agent}/reward/mean": reward,
                f"{agent}/num_turns/mean": 2.0,
                f"{agent}/is_truncated/mean": 0.25,
                "train/agg/effective/num_turns/mean": 2.0,
                "train/agg/all/agent/solved_all": 0.5,
                "train/agg/all/agent/solved_none": 0.0,
                "progress/rollouts": 4,
                "progress/output_tokens": 24,
                "off_policy/mean": 0.5,
                "off_policy/max": 1.0,
                "time/step": 61.0,
                "time/wait_for_policy": 2.0,
                **more,
            },
        )
        self.log("orchestrator", "SUCCESS", f"Step {step} |   61.0s | Reward {reward:.4f} | ...")

    def evaluated(self, step: int) -> None:
        scores = {"eval/held/policy_version": 0.0, "eval/held/effective/agent/pass@1": 0.5}
        self._row(step, scores)

    # What the trainer does

    def trained(self, step: int) -> None:
        """Its rows of a step, which it writes one by one."""
        self._row(step, {"perf/throughput": 900.0, "perf/mfu": 31.0})
        self._row(step, {"optim/lr": 1e-5, "optim/grad_norm": 0.3})
        self._row(
            step,
            {"loss/mean": -0.1, "entropy/all/mean": 0.4, "mismatch_kl/all/mean": 1.5e-5},
        )
        times = {"time/step": 60.0, "time/wait_for_batch": 40.0, "time/forward_backward": 15.0}
        self._row(step, {**times, "time/broadcast_weights": 3.0})
        self.log("trainer", "SUCCESS", f"Step {step} |  1m 0s | Loss -0.1 | Entropy 0.4000")

    def broadcast(self, step: int, *, whole: bool = True) -> None:
        directory = self.path / "broadcasts" / f"step_{step}"
        directory.mkdir(parents=True, exist_ok=True)
        if whole:
            (directory / "STABLE").touch()

    def checkpoint(self, step: int) -> None:
        directory = self.path / "checkpoints" / f"step_{step}"
        for part, name in (("orchestrator", "progress.pt"), ("trainer", ".metadata")):
            (directory / part).mkdir(parents=True)
            (directory / part / name).touch()

    def finished(self) -> None:
        self.log("orchestrator", "SUCCESS", "Orchestrator finished.")
        self.log("trainer", "SUCCESS", "RL trainer finished!")

    # All of it

    def whole(self) -> None:
        """Two steps of two groups of two, a failure of the machinery, and a checkpoint."""
        self.launch()
        self.ready()
        self.broadcast(0)
        for step in (1, 2):
            start = BEGIN + 100 * (step - 1)
            episodes = [
                self.episode(
                    f"s{step}g{group}t{member}",
                    step,
                    group=f"step{step}-group{group}",
                    task=f"task-{group}",
                    reward=float(member == 0),
                    start=start,
                    version=step - 1,
                )
                for group in (1, 2)
                for member in (0, 1)
            ]
            broken = self.episode(
                f"s{step}broken",
                step,
                group=f"step{step}-group1",
                task="task-1",
                reward=None,
                error=("SandboxError", "the container is gone"),
                start=start,
            )
            for episode in (*episodes, broken):
                self.arrived(episode, step)
            for group in (episodes[:2], episodes[2:]):
                self.shipped(group, step, 0.5)
            self.orchestrator_row(step)
            self.broadcast(step)
            self.trained(step)
        self.checkpoint(2)
        self.finished()

    def clean_after(self, step: int) -> None:
        """What a resumed run deletes."""
        for root in ("rollouts", "broadcasts"):
            for directory in (self.path / root).glob("step_*"):
                if int(directory.name.removeprefix("step_")) > step:
                    shutil.rmtree(directory)

    def _row(self, step: int, metrics: dict[str, float]) -> None:
        row: dict[str, Any] = {"step": step, "time": BEGIN + 100 * step, **metrics}
        append(self.path / "metrics.jsonl", row)


def append(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
