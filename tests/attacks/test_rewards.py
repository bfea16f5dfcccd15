"""What hostile agents do, each in a real trial; and what comes of it.

The engine and the worker live on, the outcome is what the verifier says or no verdict at all,
nothing outside the trial's own directory is written, and nothing is left.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tbtui.rollout.disk import MAX_TRIAL_BYTES
from tests.attacks.hostile import SOLVED, UNSOLVED, Attack, Result, run_attacks
from tests.rollout.environments.ordinary_user import run_as_ordinary_user

pytestmark = [pytest.mark.slow, pytest.mark.starves]

HONEST = 'if [ -e /app/solved ]; then echo 1 > "$R"; else echo 0 > "$R"; fi'
SEPARATE = {"timeout_sec = 20.0": 'timeout_sec = 20.0\nenvironment_mode = "separate"'}
REWRITE = (
    "D=/logs/verifier; "
    "(while :; do echo 1 > $D/x; mv -f $D/x $D/reward.txt; done) > /dev/null 2>&1 &"
)
VICTIM = "the host's own"

# Prevented. The verifier of each says 0, and that is what the trial must come to.
RESISTED = {
    "fork bomb": Attack(
        "f() { f | f & }; f; sleep 0.3",
        kwargs={"processes": 80},
        toml={"timeout_sec = 20.0": "timeout_sec = 8.0"},
        seconds=4,
    ),
    "memory bomb": Attack("python3 -c 'x = bytearray(3 << 30)'; head -c 3G /dev/zero | tail"),
    "full disk": Attack(
        "for d in /app /tmp /var/tmp /dev/shm /run /root /usr/local /logs/agent /opt; do"
        " head -c 2G /dev/zero > $d/fill & done; wait; rm -f /tmp/fill /usr/local/fill"
    ),
    "files without number": Attack(
        "cd /tmp; python3 -c 'for i in range(10**7): open(str(i), \"w\")' 2> /dev/null;"
        " find /tmp -name '[0-9]*' -delete"
    ),
    "endless output in the terminal": Attack("yes hostile", seconds=4),
    "control sequences in the terminal": Attack(
        r"printf '\033]0;title\007\033[?1049h\033c\033[2J\033[999;999H\033[6n\x9b\xff\xfe'; seq 99",
        seconds=3,
    ),
    "gigabytes in the verifier's output": Attack(
        "true", test=f"head -c 600M /dev/zero; {UNSOLVED}"
    ),
    "gigabytes in the agent's logs": Attack(
        "cd /logs/agent; for i in 1 2 3 4 5; do truncate -s 50M $i trajectory.$i; done;"
        " truncate -s 50M result.json"
    ),
    "gigabytes of artifacts": Attack(
        "for i in 1 2 3 4 5; do truncate -s 50M /logs/artifacts/$i; done",
        kwargs={"download_mb": 120},
    ),
    "links in the logs": Attack(
        "for d in agent verifier artifacts; do cd /logs/$d; ln -s $VICTIM link; ln -s / dir;"
        " ln -sf $VICTIM trajectory.json; ln -sf $VICTIM reward.txt; mkfifo fifo;"
        " mknod device c 1 3; echo own > x; ln x hard; ln /etc/passwd hosts-passwd; touch $'a\\nb';"
        " mkdir -p '...' '.. '; touch '.. /x'; done; mknod /logs/agent/reward.txt b 254 0"
    ),
    "a log directory that is a link": Attack(
        "rm -rf /logs/artifacts /logs/verifier; ln -s $(dirname $VICTIM) /logs/artifacts;"
        " ln -s $(dirname $VICTIM) /logs/verifier; ln -s / /logs/agent/sub"
    ),
    "links where the tests will be": Attack(
        "rm -rf /tests; mkdir -p $(dirname $VICTIM); ln -s $(dirname $VICTIM) /tests;"
        " mkfifo /tests/test.sh"
    ),
    "daemons": Attack(
        "setsid nohup sleep 47110815 > /dev/null 2>&1 & (setsid sleep 47110815 & ) & "
        "python3 -c 'import os; os.fork() or (os.setsid(), os.fork() or (os.closerange(0, 99),"
        ' os.execvp("sleep", ["sleep", "47110815"])))\''
    ),
    "a verdict planted in advance": Attack(
        "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt;"
        " echo '{\"reward\": 1}' > /logs/verifier/reward.json; chmod 0 /logs/verifier/*"
    ),
    "a test script that is a directory": Attack("mkdir -p /tests/test.sh/x"),
    "files beside the tests": Attack(
        "mkdir -p /tests; touch /tests/conftest.py",
        test='if [ -e /tests/conftest.py ]; then echo 1 > "$R"; else echo 0 > "$R"; fi',
    ),
    "a verdict kept by false programs": Attack(
        "echo '{\"reward\": 1}' > /logs/verifier/reward.json; for p in find rm mkdir; do"
        " printf '#!/bin/sh\\nexit 0\\n' > /usr/local/bin/$p; chmod +x /usr/local/bin/$p; done"
    ),
    "a verdict in a directory that can't be emptied": Attack(
        "cd /logs/verifier; echo 1 > reward.txt; python3 -c 'import os\nfor i in range(3000):"
        ' os.mkdir("d"); os.chdir("d")\''
    ),
    "an environment for the verifier": Attack(
        "for f in ~/.bashrc ~/.profile /etc/profile /etc/bash.bashrc /etc/environment; do"
        " echo 'export PATH=/evil:$PATH LD_PRELOAD=/evil.so BASH_ENV=/evil' >> $f; done",
        test='if env | grep -q evil; then echo 1 > "$R"; else echo 0 > "$R"; fi',
    ),
    "false programs for a separate verifier": Attack(
        "for p in bash sh test python3; do printf '#!/bin/true\\n' > /usr/local/bin/$p;"
        " chmod +x /usr/local/bin/$p; done; echo 'echo 1 > $R; exit' >> ~/.bashrc",
        test=HONEST,
        toml=SEPARATE,
    ),
}

# The agent's own box, or the verifier in it, broken: the agent has failed, and gets no other
# attempt in exchange. None of these verifiers would have said 1.
_WAIT = "until [ -e /tests/test.sh ]; do :; done; "
_WAIT_RUNNING = "until pgrep -f '^/bin/bash /tests/test.sh'; do :; done; "
_ONE = "echo 1 > /logs/verifier/reward.txt; "
_DONE = "; touch /app/done"


def _until(mark: str, seconds: int = 5) -> str:
    """Part of a test script that gives a daemon so long: in an untouched box it takes none."""
    wanting = f"[ -e /app/armed ] && [ ! -e {mark} ]"
    return f"for i in $(seq {10 * seconds}); do {wanting} && sleep 0.1; done; "


AFTER = _until("/app/done")
SLOWLY = AFTER + UNSOLVED


def _daemon(script: str) -> str:
    return f"touch /app/armed; (setsid bash -c {shlex.quote(script)} > /dev/null 2>&1 &)"


BROKEN = {
    "its working directory removed": Attack("rm -rf /app", test=HONEST),
    "its shell removed": Attack("rm /usr/bin/bash", test=HONEST),
    "all programs removed": Attack("rm -rf /usr/bin /usr/local/bin", test=HONEST),
    "everything removed": Attack("rm -rf --no-preserve-root / 2> /dev/null", test=HONEST),
    "the terminal's server killed": Attack("tmux kill-server", test=HONEST),
    "the terminal's shell killed": Attack("kill -9 $PPID", test=HONEST),
    "every process killed": Attack("kill -9 -1", test=HONEST),
    "files where the verifier's directories were": Attack(
        "cd /; rm -rf /logs /tests; touch /logs /tests", test=HONEST
    ),
    "no directory for the verdict": Attack(
        _daemon(_WAIT_RUNNING + "rm -rf /logs/verifier" + _DONE), test=f"{UNSOLVED}; {AFTER}true"
    ),
}
DISTURBED = {
    "a verifier that is killed": Attack(
        _daemon(_WAIT_RUNNING + _ONE + "pkill -9 -f /tests/test.sh"), test=SLOWLY
    ),
    "a verifier that is asked to end": Attack(
        _daemon(_WAIT_RUNNING + _ONE + "pkill -TERM -f /tests/test.sh"), test=SLOWLY
    ),
    "every process killed meanwhile": Attack(
        _daemon(_WAIT_RUNNING + _ONE + "kill -9 -1"), test=SLOWLY
    ),
    "a test script replaced": Attack(
        _daemon(
            _WAIT + r"printf '#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n' > /tests/x;"
            " chmod +x /tests/x; mv -f /tests/x /tests/test.sh" + _DONE
        ),
        test=SLOWLY,
    ),
    "a test script continued": Attack(
        _daemon(_WAIT_RUNNING + "echo 'echo 1 > $R' >> /tests/test.sh" + _DONE), test=SLOWLY
    ),
    "a test script patched": Attack(
        _daemon(_WAIT + "sed -i 's/echo 0/echo 1/' /tests/test.sh" + _DONE), test=SLOWLY
    ),
    "a test script removed": Attack(_daemon(_WAIT + "rm /tests/test.sh" + _DONE), test=SLOWLY),
}


def _instead(command: str, seconds: int = 5) -> Attack:
    """The verdict is replaced once it is there, before it is read."""
    wait = "until [ -s /logs/verifier/reward.txt ]; do :; done; cd /logs/verifier; "
    after = _until("/app/done", seconds)
    return Attack(_daemon(wait + command + _DONE), test=f"{UNSOLVED}; {after}true")


INSTEAD = {
    "a FIFO for the verdict": _instead("rm reward.txt; mkfifo reward.txt"),
    "a device for the verdict": _instead("rm reward.txt; mknod reward.txt c 1 5"),
    "a socket for the verdict": _instead(
        "rm reward.txt; python3 -c 'import socket as s; s.socket(s.AF_UNIX).bind(\"reward.txt\")'",
        seconds=15,
    ),
    "a directory for the verdict": _instead("rm reward.txt; mkdir reward.txt"),
    "a link for the verdict": _instead("echo 1 > /app/one; ln -sf /app/one reward.txt"),
    "a link out of the box for the verdict": _instead("ln -sf /proc/1/root/etc/hosts reward.txt"),
    "a sparse verdict": _instead("rm reward.txt; truncate -s 50M reward.txt"),
    "a huge verdict": _instead("head -c 40M /dev/zero | tr '\\0' 1 > reward.txt"),
    "a verdict of many": _instead(
        'python3 -c \'import json; json.dump(dict.fromkeys(range(2**17), 1) | {"reward": 1},'
        ' open("reward.json", "w"))\'',
        seconds=15,
    ),
    "gigabytes of details": _instead("for i in `seq 40`; do truncate -s 50M $i; done"),
}

# Nothing that the agent leaves keeps the verifier from its verdict.
IN_VAIN = {
    "no room for the verdict": Attack(
        "head -c 1G /dev/zero > /tmp/1; head -c 1G /dev/zero > /tmp/2", test=SOLVED
    ),
    "no file left for the verdict": Attack(
        "cd /tmp; python3 -c 'for i in range(10**7): open(str(i), \"w\")' 2> /dev/null", test=SOLVED
    ),
}

# Forged, in the box that the agent has worked in: its verifier runs there, after the agent, with
# what the agent has left. By a process that it has left: not where those are killed first.
BY_PROCESSES = {
    "a daemon that rewrites the verdict": Attack(REWRITE, test=UNSOLVED + "; sleep 0.3"),
    "a daemon that writes a verdict beside it": Attack(
        _daemon(
            _WAIT_RUNNING + "until [ -e /logs/verifier/reward.json ]; do"
            " echo '{\"reward\": 1}' > /logs/verifier/reward.json; done" + _DONE
        ),
        test=SLOWLY,
    ),
    "a link in the place of the verdict's directory": Attack(
        "mkdir /app/v; echo 1 > /app/v/reward.txt; "
        + _daemon(
            "until [ -s /logs/verifier/reward.txt ]; do :; done;"
            " mv /logs/verifier /logs/old; ln -s /app/v /logs/verifier" + _DONE
        ),
        test=UNSOLVED + "; " + AFTER + "true",
    ),
    "a test script patched and put back": Attack(
        _daemon(
            _WAIT_RUNNING + "cd /tests; cp test.sh /tmp/kept; sed 's/echo 0/echo 1/' test.sh"
            " > /tmp/false; cat /tmp/false > test.sh; touch /app/done;"
            " until grep 1 /logs/verifier/reward.txt; do :; done; cat /tmp/kept > test.sh;"
            " touch /app/restored"
        ),
        test='[ "$1" ] && { echo 0 > "$R"; exit; }; '
        + f'{AFTER}bash "$0" again; {_until("/app/restored")}true',
    ),
    "the verifier's memory written": Attack(
        _daemon("until [ -e /app/assigned ]; do :; done; python3 /app/trace.py" + _DONE),
        # It starts a Python, and reads all of the verifier's memory.
        test="V=verdict-0; touch /app/assigned; "
        + _until("/app/done", 15)
        + 'echo ${V#verdict-} > "$R"',
        files={
            "trace.py": """import ctypes, glob
libc = ctypes.CDLL(None, use_errno=True)
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
def write(pid, at, data):
    text = ctypes.create_string_buffer(data, len(data))
    here = Piece(ctypes.cast(text, ctypes.c_void_p), len(data))
    there = Piece(at, len(data))
    libc.process_vm_writev(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
for place in glob.glob("/proc/[0-9]*"):
    if b"/tests/test.sh" not in open(f"{place}/cmdline", "rb").read():
        continue
    lines = [line for line in open(f"{place}/maps") if " rw-p " in line]
    with open(f"{place}/mem", "rb", 0) as memory:
        for line in lines:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            memory.seek(start)
            try:
                data = memory.read(end - start)
            except OSError:
                continue
            at = data.find(b"verdict-0")
            while at >= 0:
                write(int(place[6:]), start + at, b"verdict-1")
                at = data.find(b"verdict-0", at + 1)
"""
        },
    ),
    "secrets of the verifier": Attack(
        _daemon("until grep -q s3cret /proc/[0-9]*/environ; do :; done; touch /app/done"),
        test=AFTER + 'if [ -e /app/done ]; then echo 1 > "$R"; else echo 0 > "$R"; fi',
        toml={"[environment]": '[verifier.env]\nKEY = "s3cret"\n[environment]'},
    ),
}
# By a file that it has left.
BY_FILES = {
    "a program of the verifier replaced": Attack(
        "printf '#!/bin/sh\nexit 0\n' > /usr/local/bin/pytest; chmod +x /usr/local/bin/pytest",
        test='if pytest; then echo 1 > "$R"; else echo 0 > "$R"; fi',
    ),
    "the verifier's shell replaced": Attack(
        'cp /usr/bin/bash /usr/bin/real; printf \'#!/usr/bin/real\n/usr/bin/real "$@"; '
        "echo 1 > /logs/verifier/reward.txt\n' > /tmp/bash; chmod +x /tmp/bash;"
        " mv -f /tmp/bash /usr/bin/bash"
    ),
    "a library in every program": Attack(
        "cd /app; cc -shared -fPIC -o forge.so forge.c && echo /app/forge.so > /etc/ld.so.preload",
        files={
            "forge.c": """#include <fcntl.h>
#include <unistd.h>
__attribute__((destructor)) static void forge(void) {
    int file = open("/logs/verifier/reward.txt", O_WRONLY | O_TRUNC);
    if (file >= 0) { write(file, "1", 1); close(file); }
}
"""
        },
    ),
    "a module of the verifier's Python replaced": Attack(
        "cd /app; D=$(python3 -c 'import site; print(site.getusersitepackages())'); mkdir -p $D;"
        " echo 'import os; os._exit(0)' > $D/usercustomize.py",
        test='if python3 -c \'exit(1)\'; then echo 1 > "$R"; else echo 0 > "$R"; fi',
    ),
    "a module in the working directory": Attack(
        "echo 'import os; os._exit(0)' > /app/json.py",
        test='if python3 -c \'import json; exit(1)\'; then echo 1 > "$R"; else echo 0 > "$R"; fi',
        toml={'schema_version = "1.4"': 'schema_version = "1.4"\nartifacts = ["/app"]'},
    ),
}
# Never a verdict that the verifier did not give; but the trial is attempted again.
SPOILED = {
    "a verifier that is stopped": Attack(
        _daemon(_WAIT_RUNNING + "pkill -STOP -f /tests/test.sh"),
        test=SLOWLY,
        toml={"timeout_sec = 20.0": "timeout_sec = 8.0"},
    )
}

_FIFO = {name: attack for name, attack in INSTEAD.items() if "FIFO" in name}
PREVENTED = {**DISTURBED, **_FIFO, **SPOILED, **BY_PROCESSES, **BY_FILES}
SEPARATED = {
    f"{name}, separate verifier": replace(attack, toml={**attack.toml, **SEPARATE})
    for name, attack in PREVENTED.items()
}
ALONE = {f"{name}, killed first": replace(attack, alone=True) for name, attack in PREVENTED.items()}

FIXED = {
    "a false program first on the path, programs fixed": Attack(
        "printf '#!/bin/sh\nexit 0\n' > /usr/local/bin/cmp; chmod +x /usr/local/bin/cmp",
        test='if cmp /etc/passwd /etc/group; then echo 1 > "$R"; else echo 0 > "$R"; fi',
        alone=True,
        fixed=True,
    ),
    **{
        f"{name}, programs fixed": replace(BY_FILES[name], alone=True, fixed=True)
        for name in ("the verifier's shell replaced", "a library in every program")
    },
}

if shutil.which("cc") is None:  # what boxes see of this machine
    for group, name in (
        (BY_FILES, ""),
        (SEPARATED, ", separate verifier"),
        (ALONE, ", killed first"),
        (FIXED, ", programs fixed"),
    ):
        del group[f"a library in every program{name}"]

# As long as it rages, the verifier may find no room for a process.
MAY_SPOIL = frozenset(["fork bomb"])
_BY_ITSELF = RESISTED | BROKEN | IN_VAIN | DISTURBED | INSTEAD | SPOILED | BY_PROCESSES | BY_FILES
ALL = _BY_ITSELF | SEPARATED | ALONE | FIXED
AS_USER = ["fork bomb", "memory bomb", "full disk", "links in the logs", "daemons"]
FAILED_AS_USER = [
    *("its working directory removed", "its shell removed"),
    *("a verifier that is killed", "a test script replaced"),
]
ALONE_AS_USER = ["a daemon that rewrites the verdict, killed first"]


def _prepared(folder: Path) -> dict[str, Attack]:
    """With the path of a file of the host that none of them may touch."""
    folder.mkdir(parents=True)
    (folder / "victim").write_text(VICTIM)
    prepared = {}
    for name, attack in ALL.items():
        script = f"VICTIM={folder / 'victim'}\n{attack.script}"
        prepared[name] = replace(attack, script=script)
    return prepared


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    folder = tmp_path_factory.mktemp("attacks")
    results = asyncio.run(run_attacks(folder / "run", _prepared(folder / "host")))
    assert (folder / "host" / "victim").read_text() == VICTIM
    assert [path.name for path in (folder / "host").iterdir()] == ["victim"]
    return results


@pytest.fixture(scope="module")
def results_as_user(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    if os.geteuid() != 0:
        pytest.skip("already an ordinary user")
    folder = tmp_path_factory.mktemp("attacks")

    async def body() -> dict[str, Result]:
        attacks = _prepared(Path.home() / "host")
        chosen = {name: attacks[name] for name in [*AS_USER, *FAILED_AS_USER, *ALONE_AS_USER]}
        results = await run_attacks(Path.home() / "run", chosen)
        assert (Path.home() / "host" / "victim").read_text() == VICTIM
        return results

    return run_as_ordinary_user(body, folder / "home")


FAILED: dict[str, object] = {"outcome": "failed", "reward": 0.0}
ENDS: Sequence[tuple[Iterable[str], Mapping[str, object], str]] = (
    (RESISTED, {"verdict": 0.0}, ""),
    (BROKEN, FAILED, ""),
    ((*DISTURBED, *INSTEAD), FAILED | {"verdict": None}, "the agent broke its verifier"),
    (SPOILED, {"verdict": None, "outcome": "verifier_error"}, ""),
    (IN_VAIN, {"verdict": 1.0}, ""),
    # These a task must guard against.
    ((*BY_PROCESSES, *BY_FILES), {"verdict": 1.0}, ""),
    (FIXED, FAILED, "the agent has changed /"),
    (SEPARATED, {"verdict": 0.0}, ""),
)
"""Attacks, what comes of each, and what its reason says."""


def ends() -> Iterator[tuple[str, Mapping[str, object], str]]:
    for names, wanted, reason in ENDS:
        yield from ((name, wanted, reason) for name in names)
    # What runs is killed first. Files stay, and with them what is left to a task.
    for name in ALONE:
        left = name.removesuffix(", killed first") in BY_FILES
        yield name, {"verdict": 1.0, "outcome": "solved"} if left else FAILED | {"verdict": 0.0}, ""


def _check(result: Result, name: str, wanted: Mapping[str, object], reason: str) -> None:
    assert not result.links, "a link in the trial's directory on the host"
    assert not result.left, "processes left"
    assert result.megabytes <= MAX_TRIAL_BYTES / (1 << 20)
    assert result.worker_megabytes < 600
    if name in MAY_SPOIL and result.verdict is None:
        return
    assert {field: getattr(result, field) for field in wanted} == wanted, result
    assert reason in result.reason, result


@pytest.mark.parametrize(("name", "wanted", "reason"), ends())
def test_what_comes_of_it(
    results: dict[str, Result], name: str, wanted: Mapping[str, object], reason: str
) -> None:
    _check(results[name], name, wanted, reason)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        *((name, {"verdict": 0.0}) for name in (*AS_USER, *ALONE_AS_USER)),
        *((name, FAILED) for name in FAILED_AS_USER),
    ],
)
def test_what_comes_of_it_as_ordinary_user(
    results_as_user: dict[str, Result], name: str, wanted: Mapping[str, object]
) -> None:
    _check(results_as_user[name], name, wanted, "")
