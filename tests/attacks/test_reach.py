"""What a trial can reach of the host: each row a promise, tried from inside a real trial.

One trial for each kind of box runs all probes; a probe that gets through prints something with
the secret in it, or exits with 0, which is what its row says it must not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.attacks.hostile import SOLVED, Attack, Result, run_attacks
from tests.rollout.environments.boxes import running_box, sh
from tests.rollout.environments.ordinary_user import run_as_ordinary_user

SECRET = "host-secret-4711"
REPOSITORY = Path(__file__).resolve().parents[3]
BOXES = ["root", "user", "bubblewrap"]

# What must not be seen: the output must not have the secret in it.
UNSEEN = {
    "environment variables of the host": "env; cat /proc/[0-9]*/environ",
    "command lines and environments of host processes": "ps auxeww; cat /proc/[0-9]*/cmdline",
    "files in the host's temporary directory": "cat $PLACE/*; ls -laR /tmp; cat /tmp/* /var/tmp/*",
    "the home directory of the run's user": "ls -laR $HOST_HOME; cat $HOST_HOME/*",
    "other users' homes": "ls -A /home /root; cat /home/*/* /home/*/.*",
    "the run directory and other trials": "cat $PLACE/trials/*/*; ls -R $PLACE",
    "files of another box": "cat /app/secret-of-another-box /proc/[0-9]*/root/app/secret*",
    "open files of the host": "for f in /proc/[0-9]*/fd/*; do test -f $f && head -c99 $f; done",
    "password hashes": "grep -v '[*!]' /etc/shadow && echo host-secret-4711",
    "a datagram's answer from the host": "timeout 1 cat < /dev/udp/127.0.0.1/$UDP",
}
# What must not work: the exit code must not be 0.
REFUSED = {
    "the tbtui repository": "ls $REPOSITORY",
    "docker's socket": "ls /run/docker.sock /var/run/docker.sock $DOCKER_SOCKET",
    "the ssh agent": "test -S $AGENT_SOCKET",
    "signal to a host process": "kill -0 $HOST_PID",
    "look at a host process": "ls /proc/$HOST_PID/",
    "trace a host process": "python3 /app/calls.py ptrace $HOST_PID",
    "trace process 1 of the box": "python3 /app/calls.py ptrace 1",
    "read the memory of process 1": "head -c1 /proc/1/mem",
    "see through process 1": "ls /proc/1/root/ || ls /proc/1/cwd/ || readlink /proc/1/fd/0",
    "tcp to the host's loopback": "exec 3<>/dev/tcp/127.0.0.1/$TCP",
    "tcp to the host's address": "exec 3<>/dev/tcp/$ADDRESS/$TCP",
    "the cloud's metadata service": "timeout 2 bash -c 'exec 3<>/dev/tcp/169.254.169.254/80'",
    "the network at all": "ip route | grep . || grep -v lo: /proc/net/dev | grep :",
    "abstract sockets of the host": "python3 /app/calls.py abstract",
    "sockets to the hypervisor": "python3 /app/calls.py family 40",
    "the kernel's crypto sockets": "python3 /app/calls.py family 38",
    "the host's kernel keyrings": "python3 /app/calls.py keyctl",
    "new keys": "python3 /app/calls.py add_key",
    "the host's kernel log": "dmesg || cat /dev/kmsg || cat /proc/kmsg",
    "the kernel's command line": "grep . /proc/cmdline",
    "bpf": "python3 /app/calls.py bpf",
    "performance counters": "python3 /app/calls.py perf_event_open",
    "userfaultfd": "python3 /app/calls.py userfaultfd",
    "io_uring": "python3 /app/calls.py io_uring_setup",
    "file systems by the new calls": "python3 /app/calls.py fsopen",
    "mount": "mount -t tmpfs none /mnt",
    "bind mount": "mount --bind /usr /mnt",
    "unmount": "umount /proc || umount /usr",
    "make a read-only grant writable": "mount -o remount,rw,bind /etc/ssl/certs",
    "user namespaces": "unshare -Ur true",
    "other namespaces": "unshare -m true || unshare -n true || unshare -p true",
    "the namespaces of process 1": "nsenter -t 1 -m true || nsenter -t 1 -n true",
    "writes to /sys": "find /sys -mindepth 1 | grep . || echo 1 > /sys/kernel/mm/ksm/run",
    "writes to /proc/sys": "echo 1 > /proc/sys/vm/drop_caches || echo x >/proc/sys/kernel/hostname",
    "the core pattern": "echo '|/bin/sh' > /proc/sys/kernel/core_pattern",
    "triggers of the kernel's pressure statistics": "exec 3<>/proc/pressure/cpu",
    "sysrq": "echo b > /proc/sysrq-trigger",
    "physical memory": "head -c1 /dev/mem || head -c1 /proc/kcore",
    "device nodes": "rm -f /tmp/d; mknod /tmp/d b $DISK && head -c1 /tmp/d",
    "memory by a device node": "rm -f /tmp/d; mknod /tmp/d c 1 1 && head -c1 /tmp/d",
    "privileges by set-user-id binaries": "grep -q 'NoNewPrivs:.0' /proc/self/status",
    "set-user-id binaries of the host": "grep ' /usr ' /proc/self/mountinfo | grep -v nosuid",
    "kernel modules": "modprobe dummy || insmod /tmp/x.ko",
    "reboot": "python3 /app/calls.py reboot",
    "the clock": "date -s 2001-01-01",
    "the host's name": "hostname elsewhere",
    "core dumps handed to the host": "python3 /app/calls.py core",
    "higher limits": "ulimit -Hu 1000000 || ulimit -Hn 1000000",
}

CALLS = """
import ctypes, resource, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {
    "x86_64": dict(keyctl=250, add_key=248, bpf=321, perf_event_open=298, userfaultfd=323,
                   io_uring_setup=425, fsopen=430, reboot=169),
    "aarch64": dict(keyctl=219, add_key=217, bpf=280, perf_event_open=241, userfaultfd=282,
                    io_uring_setup=425, fsopen=430, reboot=142),
}[__import__("platform").machine()]
room = ctypes.create_string_buffer(256)
ARGUMENTS = dict(
    keyctl=(0, -3, 0), add_key=(b"user", b"name", b"value", 5, -3), bpf=(0, room, 16),
    perf_event_open=(room, 0, -1, -1, 0), userfaultfd=(1,), io_uring_setup=(1, room),
    fsopen=(b"tmpfs", 0), reboot=(0xFEE1DEAD, 672274793, 0, 0),
)
what, *rest = sys.argv[1:]
if what == "ptrace":
    ok = libc.ptrace(16, int(rest[0]), 0, 0) == 0
elif what == "family":
    ok = not socket.socket(int(rest[0]), socket.SOCK_SEQPACKET if rest[0] == "38" else 1).close()
elif what == "abstract":
    client = socket.socket(socket.AF_UNIX)
    ok = client.connect("\\0tbtui-test-abstract") is None
elif what == "core":  # 0 would be ignored by a core_pattern that is a pipe
    ok = resource.getrlimit(resource.RLIMIT_CORE) != (1, 1)
else:
    ok = libc.syscall(NUMBERS[what], *ARGUMENTS[what]) >= 0
sys.exit(0 if ok else 1)
"""


def _script(facts: dict[str, str]) -> str:
    lines = [f"{name}={value!r}" for name, value in facts.items()]
    for number, (kind, probe) in enumerate(
        [*(("unseen", p) for p in UNSEEN.values()), *(("refused", p) for p in REFUSED.values())]
    ):
        lines.append(f"# {kind}")
        place = f"/logs/artifacts/{number}"
        lines.append(f'( {probe} ) < /dev/null > {place} 2>&1; echo " exit-code=$?" >> {place}')
    return "\n".join(lines)


@contextmanager
def _host(folder: Path) -> Iterator[dict[str, str]]:
    """A host with things worth stealing; what the probes must know of it."""
    place = folder / "place"
    place.mkdir(parents=True)
    (place / "secret").write_text(SECRET)
    marker = Path.home() / f"tbtui-test-secret-{os.getpid()}"
    marker.write_text(SECRET)
    os.environ["AWS_SECRET_ACCESS_KEY"] = SECRET
    disk = next((p for p in Path("/sys/block").iterdir() if (p / "dev").exists()), None)
    with contextlib.ExitStack() as stack:
        stack.callback(marker.unlink)
        stack.callback(os.environ.pop, "AWS_SECRET_ACCESS_KEY")
        tcp = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        agent = stack.enter_context(socket.socket(socket.AF_UNIX))
        agent.bind(str(place / "agent"))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        with contextlib.suppress(OSError):  # another test's is as good
            abstract.bind("\0tbtui-test-abstract")
            abstract.listen()
        os.environ["SSH_AUTH_SOCK"] = str(place / "agent")
        stack.callback(os.environ.pop, "SSH_AUTH_SOCK")
        bystander = subprocess.Popen(["/bin/sleep", "600"], env={"SECRET": SECRET})
        stack.callback(bystander.wait)
        stack.callback(bystander.kill)
        yield {
            "PLACE": str(place),
            "HOST_HOME": str(Path.home()),
            "REPOSITORY": str(REPOSITORY),
            "DOCKER_SOCKET": os.environ.get("DOCKER_HOST", "/var/run/docker.sock")[-100:],
            "AGENT_SOCKET": str(place / "agent"),
            "HOST_PID": str(bystander.pid),
            "TCP": str(tcp.getsockname()[1]),
            "UDP": str(udp.getsockname()[1]),
            "ADDRESS": _own_address(),
            "DISK": (disk / "dev").read_text().strip().replace(":", " ") if disk else "8 0",
        }
        udp.setblocking(False)
        with pytest.raises(BlockingIOError):
            udp.recv(100)  # nothing came


def _own_address() -> str:
    """An address of this host on a real interface, or the loopback's second."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.2"


async def _probe(folder: Path, backend: str) -> Result:
    with _host(folder) as facts:
        attack = Attack(
            _script(facts),
            SOLVED,
            files={"calls.py": CALLS},
            kwargs={"backend": backend},
            seconds=60,
        )
        async with running_box() as neighbour:
            await sh(neighbour, f"echo {SECRET} > /app/secret-of-another-box; sleep 600 &")
            return (await run_attacks(folder / "place", {"probe": attack}))["probe"]


@pytest.fixture(scope="module", params=BOXES)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Result:
    kind = str(request.param)
    folder = tmp_path_factory.mktemp(kind)
    if kind == "bubblewrap" and shutil.which("bwrap") is None:
        pytest.skip("no bubblewrap")
    if kind != "user":
        backend = "bubblewrap" if kind == "bubblewrap" else "namespaces"
        return asyncio.run(_probe(folder, backend))
    if os.geteuid() != 0:
        pytest.skip("already an ordinary user")

    return run_as_ordinary_user(lambda: _probe(Path.home() / "work", "namespaces"), folder / "home")


def _evidence(seen: Result, number: int) -> tuple[str, int]:
    assert seen.outcome == "solved", seen
    text, _, code = seen.artifacts[str(number)].rpartition(" exit-code=")
    return text, int(code)


@pytest.mark.slow
@pytest.mark.parametrize("what", UNSEEN)
def test_unseen(seen: Result, what: str) -> None:
    text, _ = _evidence(seen, list(UNSEEN).index(what))
    assert SECRET not in text


@pytest.mark.slow
@pytest.mark.parametrize("what", REFUSED)
def test_refused(seen: Result, what: str) -> None:
    text, code = _evidence(seen, len(UNSEEN) + list(REFUSED).index(what))
    assert code != 0, text
