"""A small run of the real Prime-RL on the CPU, with tbtui's plugin and the embedded model.

    python -m tests.by_hand.prime_rl_cpu --prime-rl DIR [--home DIR] [--dry-run] [--record FILE]

`--prime-rl` (else $PRIME_RL_DIR) is a checkout of Prime-RL at 559b447 whose `.venv` can import its
orchestrator and its inference server without a GPU: vLLM 0.26's build for the CPU in place of
vLLM, and PyTorch 2.11. The plugin is installed into that environment by the command of
`tbtui/guide/prime-rl-plugin.md` if it isn't there.

Real are Prime-RL's launcher, configuration, orchestrator, environment servers, inference server
(vLLM, paused and given new weights by the orchestrator), loss and files; verifiers' training
client; the trials in tbtui's sandbox. A stand-in (`trainer.py`) trains: Prime-RL's trainer wants
GPUs. `ring_flash_attn` is imported by all of it and can't be without one, so it is a stand-in too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tbtui.config.toml import toml_text
from tbtui.policies.local.export import export
from tbtui.policies.local.tokenizer import SHIPPED
from tests.by_hand.prime_rl_cpu.record import record

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
NAME = "cpu"
CONTEXT = 1024
SETTINGS = {
    "tasks_dir": str(REPOSITORY / "tasks" / "starter"),
    "tasks": "append-01,copy-01,create-01,count-01,move-01,nested-01,mkdir-01,remove-01",
    "eval_tasks": "mkdir-01,remove-01",
    "run_name": NAME,
    "batch_size": "2",
    "group_size": "4",
    "max_steps_off_policy": "2",
    "eval_every": "2",
    "max_turns": "4",
    "max_tokens": "96",
    "context_limit": str(CONTEXT),
    "learning_rate": "0.0005",
    "environment_type": "sandbox",
}
_STOP_SEC = 20.0


def chat_template() -> str:
    """The embedded model's, with Terminus-2's screens in the plain form that it reads.

    As `tbtui.policies.local.renderer.normalise` does, as far as Jinja's text methods go.
    """
    steps = [
        "{% set c = m['content'] %}",
        "{% set c = c.replace('\\n\\n\\nCurrent terminal state:\\n',"
        " '\\n\\nCurrent terminal state:\\n') %}",
        "{% for label in ['New Terminal Output:\\n', 'Current Terminal Screen:\\n'] %}"
        "{% if label in c %}{% set parts = c.split(label, 1) %}"
        "{% set ns.text = parts[0] + parts[1].lstrip('\\n') %}{% set ns.found = true %}"
        "{% endif %}{% endfor %}",
        "{% if ns.found %}{% set c = ns.text %}{% endif %}",
        "{% set ask = '\\n\\nAre you sure you want to mark the task as complete?' %}",
        "{% if ask in c %}{% set parts = c.split(ask, 1) %}"
        "{% set c = parts[0].rstrip() + ask + parts[1].rstrip() %}"
        "{% else %}{% set c = c.rstrip() %}{% endif %}",
        "{% set hosts = c.split('root@') %}",
        "<|user|>{{ hosts[0] }}{% for part in hosts[1:] %}"
        "root@{% if ':/' in part %}box:{{ part.split(':', 1)[1] }}{% else %}{{ part }}{% endif %}"
        "{% endfor %}<|end|>",
    ]
    return (
        "{% for m in messages %}{% set ns = namespace(text='', found=false) %}"
        "{% if m['role'] == 'assistant' %}<|asst|>{{ m['content'] }}<|end|>{% else %}"
        + "".join(steps)
        + "{% endif %}{% endfor %}{% if add_generation_prompt %}<|asst|>{% endif %}"
    )


def make_model(directory: Path) -> None:
    """The embedded model with an output layer of its own.

    vLLM's CPU build, given new weights, goes on with the old ones of an output layer that is the
    embedding's: log-probabilities were off by up to 0.3 after the first update.
    """
    from safetensors.numpy import load_file, save_file

    export(SHIPPED, directory)
    weights = load_file(directory / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    changes = {
        "config.json": {"tie_word_embeddings": False},
        "tokenizer_config.json": {"chat_template": chat_template()},
    }
    for name, change in changes.items():
        path = directory / name
        path.write_text(json.dumps(json.loads(path.read_text()) | change, indent=2))


def configuration(home: Path, prime_rl: Path, steps: int) -> str:
    """What `tbtui prime-rl config` prints, which Prime-RL's classes have checked, for the CPU."""
    import tomllib

    settings = {
        **SETTINGS,
        "model_name": str(home / "model"),
        "logs_dir": str(home / "run" / "prime_rl"),
        "max_steps": str(steps),
    }
    printed = subprocess.run(
        [sys.executable, "-m", "tbtui", "prime-rl", "config"]
        + [f"{name}={value}" for name, value in settings.items()],
        env={**os.environ, "PRIME_RL_DIR": str(prime_rl)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    document: dict[str, Any] = tomllib.loads(printed.stdout)
    document["ckpt"]["interval"] = 2
    del document["trainer"]["model"]  # no adapters: the weights of all of the small model
    document["weight_broadcast"] = {"type": "filesystem"}
    document["rollout_transport"] = {"type": "filesystem"}
    document["orchestrator"]["env_server_base_port"] = free_port(2)
    document["orchestrator"]["log"] = {"interval": 2.0}
    for part in ("train", "eval"):
        for source in document["orchestrator"][part]["source"]:
            harness = source["env"]["agent"]["harness"]
            harness |= {"trials_dir": str(home / "run"), "n_parallel_envs": 4, "n_workers": 1}
    document["orchestrator"]["concurrency"]["max_inflight"] = 8
    port = free_port(1)
    document["inference"]["server"] = {"host": "127.0.0.1", "port": port}
    document["orchestrator"]["model"] = {"client": {"base_url": f"http://127.0.0.1:{port}/v1"}}
    document["inference"]["enable_fp32_lm_head"] = False  # a kernel for GPUs; here all is 32 bits
    document["inference"]["vllm"] |= {"dtype": "float32", "enforce_eager": True}
    return toml_text(document)


def free_port(count: int) -> int:
    """The first of `count` ports of this host that nobody uses now."""
    while True:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            port = int(first.getsockname()[1])
            with contextlib.suppress(OSError, OverflowError):
                for other in range(1, count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port + other)))
                return port


def install_plugin(python: Path) -> None:
    found = subprocess.run([python, "-c", "import tbtui_harbor"], capture_output=True, check=False)
    if found.returncode:
        say("installing the plugin")
        command = ["uv", "pip", "install", "--python", str(python)]
        subprocess.run([*command, f"tbtui[prime-rl] @ file://{REPOSITORY}"], check=True)


def launch(home: Path, prime_rl: Path, *, dry_run: bool) -> int:
    """Run Prime-RL's `rl`; its exit code."""
    binaries = prime_rl / ".venv" / "bin"
    shims = home / "bin"
    shims.mkdir(exist_ok=True)
    torchrun = shims / "torchrun"
    # The real one, with our trainer in place of Prime-RL's module.
    torchrun.write_text(
        f"#!{binaries / 'python'}\nimport os, sys\n"
        f"real, ours = {str(binaries / 'torchrun')!r}, {str(HERE / 'trainer.py')!r}\n"
        "at = sys.argv.index('-m')\n"
        "os.execv(real, [real, *sys.argv[1:at], ours, *sys.argv[at + 2 :]])\n"
    )
    torchrun.chmod(0o755)
    variables = {
        "PATH": os.pathsep.join([str(shims), str(binaries), os.environ["PATH"]]),
        "PYTHONPATH": str(HERE / "stand_ins"),
        "CUDA_VISIBLE_DEVICES": "0,1",  # the launcher counts them, and nobody uses them
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    # Its router isn't to be had everywhere, and there is one engine.
    command = [str(binaries / "rl"), "@", str(home / "run.toml"), "--inference.router", "None"]
    process = subprocess.Popen(
        [*command, *(["--dry-run"] if dry_run else [])],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait()
    finally:
        # All that it has started is in its process group, which may outlive it.
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
                time.sleep(1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.by_hand.prime_rl_cpu")
    parser.add_argument("--prime-rl", type=Path, default=os.environ.get("PRIME_RL_DIR"))
    parser.add_argument("--home", type=Path, default=Path("prime-rl-cpu"), help="files go here")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--dry-run", action="store_true", help="Prime-RL writes its configuration")
    parser.add_argument("--record", type=Path, help="pack what was written into this file")
    arguments = parser.parse_args()
    if arguments.prime_rl is None or not (arguments.prime_rl / ".venv/bin/rl").is_file():
        parser.error("--prime-rl: no checkout of Prime-RL with an environment (.venv/bin/rl)")
    prime_rl, home = arguments.prime_rl.absolute(), arguments.home.absolute()
    if (home / "run").exists():
        parser.error(f"--home: {home / 'run'} is there already, from another run")
    (home / "run").mkdir(parents=True)
    install_plugin(prime_rl / ".venv/bin/python")
    make_model(home / "model")
    (home / "run.toml").write_text(configuration(home, prime_rl, arguments.steps))
    code = launch(home, prime_rl, dry_run=arguments.dry_run)
    if arguments.record is not None and not arguments.dry_run and code == 0:
        paths = {
            str(prime_rl.resolve()): "/opt/prime-rl",
            str((prime_rl / ".venv").resolve()): "/opt/prime-rl/.venv",
            sys.base_prefix: "/usr",
            str(REPOSITORY): "/opt/tbtui",
        }
        record(home, arguments.record, paths)
    return code


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
