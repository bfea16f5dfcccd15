"""Every kind of host, as a table; and this one, for real."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from tbtui.rollout.environments.base import EnvironmentUnavailable
from tbtui.rollout.environments.choose import Decided, HostProbe, decide

LINUX = HostProbe(
    platform="linux",
    root=False,
    tmux="3.4",
    namespaces="usable",
    namespaces_detail="overlay",
    namespaces_remedy=None,
    overlay=True,
    bubblewrap="unknown",
    docker="unknown",
    podman="unknown",
    cgroups="v2",
    compose="works",
)
SYSCTL = "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
UBUNTU = replace(
    LINUX,
    namespaces="powerless",
    namespaces_detail="id map: Operation not permitted",
    namespaces_remedy=SYSCTL,
    bubblewrap="missing",
    docker="missing",
    podman="missing",
)
MAC = replace(
    UBUNTU, platform="darwin", namespaces="absent", namespaces_remedy=None, cgroups="none"
)
DOCKER = "tbtui.rollout.environments.docker:DockerEnvironment"
PODMAN = "tbtui.rollout.environments.docker:PodmanEnvironment"
SANDBOX = "tbtui.rollout.environments.sandbox:SandboxEnvironment"


def test_sandbox_is_the_default() -> None:
    choice = decide(None, {"processes": 9}, LINUX)
    assert (choice.name, choice.import_path, choice.type) == ("sandbox", SANDBOX, None)
    assert choice.kwargs == {"processes": 9}


def test_bubblewrap_where_only_it_may() -> None:
    choice = decide(None, {}, replace(UBUNTU, bubblewrap="works", docker="works"))
    assert choice.import_path == SANDBOX
    assert choice.kwargs == {"backend": "bubblewrap"}
    assert "only bubblewrap" in choice.reason


@pytest.mark.parametrize("host", [UBUNTU, MAC])
def test_engines_where_no_sandbox_is_possible(host: HostProbe) -> None:
    assert decide(None, {}, replace(host, docker="works", podman="works")).name == "docker"
    assert decide(None, {}, replace(host, podman="works")).import_path == PODMAN
    without_plugin = replace(host, docker="works", compose="fails", podman="works")
    assert decide(None, {}, without_plugin).name == "podman"


def test_an_engine_asked_for() -> None:
    choice = decide("docker", {"processes": 9}, replace(LINUX, docker="works"))
    assert (choice.type, choice.import_path, choice.kwargs) == (None, DOCKER, {"processes": 9})


@pytest.mark.parametrize(
    ("host", "wanted", "says"),
    [
        (UBUNTU, None, SYSCTL),
        (UBUNTU, "sandbox", SYSCTL),
        (replace(UBUNTU, docker="works"), "sandbox", SYSCTL),
        (replace(UBUNTU, namespaces_remedy=None), None, "install bubblewrap"),
        (replace(UBUNTU, namespaces_remedy=None, namespaces="refused"), None, "start Docker"),
        (MAC, None, r"environment_type=docker .*, or a service \(modal"),
        (MAC, "sandbox", "needs Linux, this is darwin: give environment_type=docker"),
        (replace(MAC, docker="fails"), "docker", "start Docker Desktop"),
        (UBUNTU, "docker", "docker is not installed"),
        (replace(LINUX, docker="fails"), "docker", "systemctl start docker"),
        (replace(LINUX, docker="works", compose="fails"), "docker", "docker-compose-plugin"),
        (replace(LINUX, podman="fails"), "podman", "podman info"),
        (replace(LINUX, tmux=None), None, "apt-get install tmux"),
    ],
)
def test_refusals_are_one_line_with_the_remedy(host: HostProbe, wanted: Decided, says: str) -> None:
    with pytest.raises(EnvironmentUnavailable, match=says) as caught:
        decide(wanted, {}, host)
    assert "\n" not in str(caught.value)


@pytest.mark.uid
@pytest.mark.linux
def test_this_host_without_importing_harbor() -> None:
    code = (
        "import sys; from tbtui.rollout.environments.choose import choose_environment as c; "
        "print(c(None).name); print([m for m in sys.modules if m.split('.')[0] in "
        "('harbor', 'litellm', 'pydantic', 'textual')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "sandbox\n[]\n"
