"""The parts of Harbor that are private, or not promised, and that this package relies on.

One list, checked when a worker starts and in a test, so that a new Harbor fails at once and by
name instead of in the middle of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from harbor.agents.terminus_2.terminus_2 import Terminus2
from harbor.agents.terminus_2.tmux_session import TmuxSession
from harbor.environments.base import BaseEnvironment
from harbor.publisher.packager import Packager
from harbor.trial.hooks import TrialEvent
from harbor.trial.trial import Trial
from harbor.utils.scripts import build_execution_command
from harbor.verifier.verifier import Verifier

from tbtui.imports import missing_parts

_METHODS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "Terminus2._init_llm": (Terminus2._init_llm, ()),
    "Terminus2._get_parser": (Terminus2._get_parser, ()),
    "Terminus2._run_agent_loop": (
        Terminus2._run_agent_loop,
        ("initial_prompt", "chat", "original_instruction"),
    ),
    "Terminus2._handle_llm_interaction": (
        Terminus2._handle_llm_interaction,
        ("chat", "prompt", "original_instruction", "session"),
    ),
    "Terminus2._execute_commands": (Terminus2._execute_commands, ("commands", "session")),
    "Terminus2._check_proactive_summarization": (
        Terminus2._check_proactive_summarization,
        ("chat", "original_instruction", "session"),
    ),
    "Terminus2._run_subagent": (Terminus2._run_subagent, ("filename_suffix",)),
    "Terminus2._count_total_tokens": (Terminus2._count_total_tokens, ("chat",)),
    "Terminus2._limit_output_length": (Terminus2._limit_output_length, ("output",)),
    "Terminus2._get_error_response_type": (Terminus2._get_error_response_type, ()),
    "Terminus2._dump_trajectory": (Terminus2._dump_trajectory, ()),
    "Terminus2._save_subagent_trajectory": (Terminus2._save_subagent_trajectory, ()),
    "TmuxSession.__init__": (
        TmuxSession.__init__,
        (
            "session_name",
            "environment",
            "logging_path",
            "local_asciinema_recording_path",
            "remote_asciinema_recording_path",
            "pane_width",
            "pane_height",
            "extra_env",
            "user",
        ),
    ),
    "TmuxSession.start": (TmuxSession.start, ()),
    "TmuxSession._send_keys_to_session": (
        TmuxSession._send_keys_to_session,
        ("keys", "action"),
    ),
    "TmuxSession._send_non_blocking_keys": (
        TmuxSession._send_non_blocking_keys,
        ("keys", "min_timeout_sec"),
    ),
    "TmuxSession._tmux_capture_pane": (TmuxSession._tmux_capture_pane, ("capture_entire",)),
    "TmuxSession.capture_pane": (TmuxSession.capture_pane, ()),
    "TmuxSession.get_incremental_output": (TmuxSession.get_incremental_output, ()),
    "TmuxSession.is_session_alive": (TmuxSession.is_session_alive, ()),
    "BaseEnvironment.empty_dirs": (BaseEnvironment.empty_dirs, ("dirs", "chmod")),
    "BaseEnvironment.stop": (BaseEnvironment.stop, ("delete",)),
    "Trial.add_hook": (Trial.add_hook, ("event", "hook")),
    "Verifier.__init__": (
        Verifier.__init__,
        ("task", "environment", "verifier_env", "step_name", "skip_tests_upload"),
    ),
    "Verifier.verify": (Verifier.verify, ()),
    "Verifier._parse_reward_text": (Verifier._parse_reward_text, ()),
    "Verifier._parse_reward_json": (Verifier._parse_reward_json, ()),
    "Packager.collect_files": (Packager.collect_files, ("task_dir",)),
    "Packager.compute_content_hash": (Packager.compute_content_hash, ("task_dir",)),
    "Verifier._resolve_tests": (Verifier._resolve_tests, ()),
    "build_execution_command": (build_execution_command, ("script_path", "stdout_path")),
}
_ATTRIBUTES: dict[str, tuple[type, tuple[str, ...]]] = {
    "Terminus2": (
        Terminus2,
        ("_llm", "_parser", "_session", "_pending_completion", "_trajectory_steps"),
    ),
    "Trial": (Trial, ("paths", "agent_env_paths")),
    "Verifier": (Verifier, ("_skip_tests_upload",)),
}
_EVENTS = ("ENVIRONMENT_START", "AGENT_START", "AGENT_END", "VERIFICATION_START", "END")


class HarborDriftError(Exception):
    """The installed Harbor is not as this program expects; the message says where."""


def drift() -> list[str]:
    """Everything in the installed Harbor that is missing or has lost a parameter."""
    return missing_parts(_METHODS, _ATTRIBUTES) + [
        f"TrialEvent has no {name}" for name in _EVENTS if name not in TrialEvent.__members__
    ]


def check() -> None:
    """Raise `HarborDriftError` if the installed Harbor is not as expected."""
    if found := drift():
        raise HarborDriftError(
            f"Harbor {version('harbor')} differs from what tbtui was written for:"
            f" {'; '.join(found)}. Install a Harbor that pyproject.toml names, or adapt"
            " tbtui/rollout/terminus.py and tbtui/rollout/seam.py."
        )
