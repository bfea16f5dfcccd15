"""Which compose files stay inside their containers; no engine is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tbtui.rollout.environments.docker_cli import beside_clients_own
from tbtui.rollout.environments.docker_host_access import client_reads, host_access


def asked(place: Path, *, top: dict[str, Any] | None = None, **main: Any) -> list[str]:
    """What a resolved file with one service asks for."""
    document = {"name": "p", "services": {"main": {"image": "x", **main}}, **(top or {})}
    return host_access(document, [place])


def test_what_ordinary_tasks_have(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    limits = {"limits": {"cpus": 1, "memory": "1073741824"}}
    main = {
        "build": {"context": str(tmp_path), "dockerfile": "Dockerfile", "args": {"A": "1"}},
        "command": ["sh", "-c", "sleep infinity"],
        "entrypoint": None,
        "environment": {"TEST_DIR": "/tests"},
        "network_mode": "bridge",
        "privileged": False,
        "deploy": {"resources": limits, "placement": {}},
        "volumes": [
            {"type": "bind", "source": str(tmp_path / "data"), "target": "/data", "bind": {}},
            {"type": "volume", "source": "kept", "target": "/kept", "volume": {}},
            {"type": "tmpfs", "target": "/t"},
        ],
        "cap_add": ["SYS_PTRACE", "cap_chown", "IPC_LOCK"],
        "security_opt": ["no-new-privileges:true"],
        "depends_on": {"db": {"condition": "service_healthy", "required": True}},
        "secrets": [{"source": "key", "target": "/run/secrets/key"}],
        "x-note": "free",
    }
    db = {
        "image": "postgres:16",
        "hostname": "db",
        "healthcheck": {"test": ["CMD", "pg_isready"], "interval": "2s"},
        "ports": [{"mode": "ingress", "target": 5432, "published": "5432", "protocol": "tcp"}],
        "networks": {"inner": {"aliases": ["database"]}},
        "shm_size": "268435456",
        "pid": "service:main",
        "volumes_from": ["main"],
    }
    document = {
        "name": "p",
        "services": {"main": main, "db": db},
        "networks": {"inner": {"name": "fixed", "driver": "bridge", "ipam": {}}},
        "volumes": {"kept": {"name": "fixed"}, "plain": None},
        "secrets": {"key": {"name": "p_key", "file": str(tmp_path / "data" / "key")}},
        "configs": {"made": {"name": "p_made", "content": "hello"}},
        "x-common": {"a": 1},
    }
    assert host_access(document, [tmp_path]) == []


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("privileged", True, "privileged"),
        ("devices", [{"source": "/dev/sda", "target": "/dev/sda"}], "devices"),
        ("gpus", "all", "gpus"),
        ("cap_add", ["SYS_ADMIN"], "cap_add: SYS_ADMIN"),
        ("cap_add", ["CAP_NET_ADMIN"], "cap_add: NET_ADMIN"),
        ("security_opt", ["seccomp:unconfined"], "security_opt: seccomp:unconfined"),
        ("pid", "host", "pid: host"),
        ("pid", "container:other", "pid: container:other"),
        ("ipc", "host", "ipc: host"),
        ("network_mode", "host", "network_mode: host"),
        ("network_mode", "container:other", "network_mode: container:other"),
        ("network_mode", "somebodys_default", "network_mode: somebodys_default"),
        ("userns_mode", "host", "userns_mode"),
        ("uts", "host", "uts"),
        ("cgroup", "host", "cgroup: host"),
        ("cgroup_parent", "/", "cgroup_parent"),
        ("device_cgroup_rules", ["a *:* rwm"], "device_cgroup_rules"),
        ("volumes_from", ["container:other:rw"], "volumes_from: container:other:rw"),
        ("external_links", ["other"], "external_links"),
        ("runtime", "other", "runtime"),
        ("post_start", [{"command": "id", "privileged": True}], "post_start"),
        ("provider", {"type": "/bin/sh"}, "provider"),
        ("use_api_socket", True, "use_api_socket"),
        ("ulimits", {"nproc": 9, "rtprio": 99}, "ulimits: rtprio"),
        ("a_key_of_next_year", 1, "a_key_of_next_year"),
        ("volumes", [{"type": "bind", "source": "/", "target": "/h"}], "mounts /"),
        ("volumes", [{"type": "npipe", "source": "/", "target": "/h"}], "mounts a npipe"),
        (
            "deploy",
            {"resources": {"reservations": {"devices": [{"capabilities": ["gpu"]}]}}},
            "deploy: devices",
        ),
        ("build", {"context": "/root"}, "builds from /root"),
        ("build", {"context": "https://a.example/x.git"}, "builds from https://a.example/x.git"),
        ("build", {"context": ".", "additional_contexts": {"a": "/root"}}, "builds from /root"),
        ("build", {"context": ".", "dockerfile": "/etc/shadow"}, "builds by /etc/shadow"),
        ("build", {"context": ".", "network": "host"}, "builds in the network host"),
        ("build", {"context": ".", "ssh": ["default"]}, "build: ssh"),
        ("build", {"context": ".", "privileged": True}, "build: privileged"),
        ("build", {"context": ".", "cache_to": ["type=local,dest=/x"]}, "build: cache_to"),
    ],
)
def test_a_service_that_reaches_the_host(key: str, value: Any, named: str, tmp_path: Path) -> None:
    if key == "build" and value["context"] == ".":
        value = {**value, "context": str(tmp_path)}
    assert asked(tmp_path, **{key: value}) == [f"main: {named}"]


@pytest.mark.parametrize(
    ("top", "named"),
    [
        (
            {"volumes": {"v": {"driver_opts": {"type": "none", "o": "bind", "device": "/"}}}},
            "volume v: driver_opts",
        ),
        ({"volumes": {"v": {"name": "other_data", "external": True}}}, "volume v: external"),
        ({"volumes": {"v": {"driver": "sshfs"}}}, "volume v: driver: sshfs"),
        ({"secrets": {"s": {"file": "/etc/shadow"}}}, "secret s: reads /etc/shadow"),
        ({"configs": {"c": {"file": "/etc/shadow"}}}, "config c: reads /etc/shadow"),
        ({"secrets": {"s": {"environment": "DOCKER_PASSWORD"}}}, "secret s: the host's DOCKER_PA"),
        ({"services": {"m": {"scale": 20}, "n": {"deploy": {"replicas": 20}}}}, "40 containers"),
        ({"secrets": {"s": {"external": True}}}, "secret s: external"),
        ({"networks": {"n": {"name": "host", "external": True}}}, "network n: external"),
        ({"networks": {"n": {"name": "p_n", "driver": "host"}}}, "network n: driver: host"),
        ({"networks": {"n": {"ipam": {"config": [{"subnet": "1.1.1.0/24"}]}}}}, "network n: ipam"),
        ({"models": {"m": {"model": "x"}}}, "models"),
    ],
)
def test_what_is_declared_for_all_and_reaches_the_host(
    tmp_path: Path, top: dict[str, Any], named: str
) -> None:
    assert any(line.startswith(named) for line in asked(tmp_path, top=top))


def test_only_a_whole_directory_of_logs_may_be_mounted(tmp_path: Path) -> None:
    def mounted(source: str) -> list[str]:
        service = {"image": "x", "volumes": [{"type": "bind", "source": source}]}
        return host_access({"services": {"main": service}}, [tmp_path], ["/logs/agent"])

    assert mounted("/logs/agent") == []
    # A container that writes there can make it a link before another is started.
    assert mounted("/logs/agent/inner") == ["main: mounts /logs/agent/inner"]
    assert mounted("/logs") == ["main: mounts /logs"]


def test_a_link_leads_out(tmp_path: Path) -> None:
    (tmp_path / "here").symlink_to("/")
    mount = {"type": "bind", "source": str(tmp_path / "here"), "target": "/h"}
    assert asked(tmp_path, volumes=[mount]) == [f"main: mounts {tmp_path / 'here'}"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("services: {main: {env_file: /root/.env}}", "env_file: /root/.env"),
        ("services: {main: {env_file: [a.env, ../../b]}}", "env_file: ../../b"),
        (
            "services: {main: {env_file: [{path: /root/.env, required: false}]}}",
            "env_file: /root/.env",
        ),
        ("services: {main: {env_file: '${HOME}/.env'}}", "env_file: ${HOME}/.env"),
        ('services: {main: {"\\x65nv_file": /root/.env}}', "env_file: /root/.env"),
        ("x: &a {env_file: /root/.env}\nservices: {main: {<<: *a}}", "env_file: /root/.env"),
        ("services: {}\n---\nservices: {main: {env_file: /x}}", "env_file: /x"),
        ("services: {main: {label_file: /etc/passwd}}", "label_file: /etc/passwd"),
        ("include: [{path: a.yaml, env_file: /root/.env}]", "include"),
        ("services: {main: {extends: {file: /x.yaml, service: a}}}", "extends a service of"),
    ],
)
def test_what_the_client_would_read(tmp_path: Path, text: str, named: str) -> None:
    assert client_reads(text, tmp_path)[0].startswith(named)


def test_what_the_client_may_read(tmp_path: Path) -> None:
    text = (
        "x: &a [*a]\nservices:\n  main: {env_file: [.env, a/b.env], volumes: !override ['v:/v']}\n"
        "  other: {extends: {service: main}, ports: !reset []}\n"
    )
    (tmp_path / ".env").write_text("A=1\n")
    assert client_reads(text, tmp_path) == []
    (tmp_path / ".env").unlink()
    (tmp_path / ".env").symlink_to("/root/.env")
    assert client_reads(text, tmp_path)[0] == ".env is a link out of the task"
    with pytest.raises(ValueError, match="line 1: a key that is not plain"):
        client_reads("services: {main: {!!binary ZW52X2ZpbGU=: /root/.env}}", tmp_path)


def test_a_tasks_variables_do_not_turn_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("DOCKER_PASSWORD", "of-the-host")
    wished = {
        **{"DOCKER_HOST": "tcp://evil:1", "PATH": "/app/bin", "LD_PRELOAD": "./evil.so"},
        **{"https_proxy": "http://evil", "GIT_SSH_COMMAND": "evil", "MODEL": "m"},
    }
    given = beside_clients_own(wished)
    assert (given["PATH"], given["MODEL"]) == ("/usr/bin", "m")
    assert not {"DOCKER_HOST", "LD_PRELOAD", "GIT_SSH_COMMAND"} & given.keys()
    assert given.get("https_proxy") != "http://evil"
    resolving = beside_clients_own(wished, resolving=True)
    assert (resolving["PATH"], resolving["MODEL"]) == ("/usr/bin", "m")
    assert "of-the-host" in given.values()
    assert "of-the-host" not in resolving.values()
