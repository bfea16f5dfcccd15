"""Keys and screens by a tmux client that stays: the same as by a process for each."""

from __future__ import annotations

import asyncio
import random
import shlex
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from harbor.environments.base import ExecResult

from tbtui.rollout import session
from tbtui.rollout.environments.base import Terminals
from tbtui.rollout.environments.box import Box
from tbtui.rollout.environments.userland import BASE_ENVIRONMENT
from tbtui.rollout.session import TmuxControl, plain_tmux
from tests.rollout.environments.boxes import STARTERS, running_box, sh

CAPTURE = "tmux capture-pane -p -t {}"
ENTIRE = "tmux capture-pane -p -S - -t {}"
RAW = "stty raw -echo; exec cat -v"
"""A pane that shows every byte it is sent, as ASCII."""
KEYS = (
    *([""], [" "], ["  two  "], ["-l"], ["--"], ["-t", "none"], ["\t"], ["\x7f\x1b[A"], ["^C"]),
    *(["C-c"], ["Enter"], ["M-x"], ["C-"], ["Escape"], ["Up", "F1", "NPage"], ["KPEnter", "C-m"]),
    *(["0x41"], ["a\nb\n"], ["\r\n"], ["'"], ['"'], ["$HOME ${X} $(id)"], ["#{pane_id} #(id)"]),
    *(["# none"], ["\n # none\n"], ["~", "~root"], ["{", "}"], ["{ a }"], ["a;b ; c"], ["; a"]),
    *([";", "kill-server;x"], [r"\;x", r"\n\\", "\\"], ["%if 1", "%1", "%%"], ["FOO=bar", "-N"]),
    *([r"\u00e9\101\012"], ["é"], ["漢字 🙂 e\u0301"], ["\u200b\ufeff\u2028"], ["é" * 2000]),
    *(["x" * 15_000], ["\x01\x02\x1f", "\x80"], ["set -g prefix"], ["é", "Enter", "b"]),
)
ALPHABET = "ab01 -_=;:,.~#$%{}[]()'\"\\/\n\r\t|&<>*?!@^`é漢🙂\x1b\x03"


class Programs:
    """A box, and what a `TmuxControl` needs of it."""

    def __init__(self, box: Box) -> None:
        self.box = box

    async def open_program(
        self, argv: Sequence[str], *, user: str | int | None = None
    ) -> socket.socket:
        return await self.box.open_program(argv, environment=BASE_ENVIRONMENT, cwd="/app")

    async def exec(self, command: str) -> ExecResult:
        done = await sh(self.box, command)
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.exit_code)


@asynccontextmanager
async def terminals(
    *names: str, program: str = RAW, backend: str = "namespaces"
) -> AsyncIterator[tuple[Programs, TmuxControl]]:
    """A box with a tmux session of each name, and a client of the first."""
    async with running_box(backend) as box:
        programs = Programs(box)
        assert isinstance(programs, Terminals)
        for name in names:
            start = f"tmux new-session -x 160 -y 40 -d -s {name} {shlex.quote(program)}"
            assert (await programs.exec(start)).return_code == 0
            if program == RAW:  # until then the terminal echoes by itself
                name_of_program = f"tmux display-message -p -t {name} '#{{pane_current_command}}'"
                wait = f'until [ "$({name_of_program})" = cat ]; do sleep 0.01; done'
                assert (await programs.exec(wait)).return_code == 0
        control = await TmuxControl.open(programs, names[0])
        try:
            yield programs, control
        finally:
            control.close()


async def asked(control: TmuxControl, command: str) -> ExecResult:
    argv = plain_tmux(command)
    assert argv is not None, command
    result = await control.run(argv)
    assert result is not None, command
    return result


def keys_to(session: str, keys: Sequence[str]) -> str:
    """As Harbor writes it."""
    return f"tmux send-keys -t {session} -- " + " ".join(shlex.quote(key) for key in keys)


async def shown(look: Callable[[], Awaitable[ExecResult]], text: str) -> str:
    while True:
        screen = (await look()).stdout or ""
        if text in screen:
            return screen
        await asyncio.sleep(0.01)


async def same_screen(programs: Programs, control: TmuxControl, session: str, text: str) -> str:
    """What both roads show once the text is there."""
    await shown(lambda: asked(control, ENTIRE.format(session)), text)
    for command in (CAPTURE.format(session), ENTIRE.format(session)):
        before = None
        # The shell may write on while they are asked.
        while before != (by_client := await asked(control, command)):
            before, by_process = by_client, await programs.exec(command)
        assert by_client == by_process
    return by_client.stdout or ""


@pytest.mark.slow
async def test_any_keys_arrive_as_by_a_process_each() -> None:
    chance = random.Random(1)
    generated = [
        ["".join(chance.choices(ALPHABET, k=chance.randint(1, 30))) for _ in range(words)]
        for words in (1, 1, 1, 2, 3) * 8
    ]
    async with terminals("one", "two") as (programs, control):
        assert plain_tmux(CAPTURE.format("two")) is not None
        await asked(control, CAPTURE.format("one"))
        sent = 0
        for number, keys in enumerate([*KEYS, *generated]):
            if plain_tmux(keys_to("one", keys)) is None:
                assert any(key.endswith(";") for key in keys)
                continue
            sent += 1
            mark = f"<{number}>"
            by_client = await asked(control, keys_to("one", keys))
            by_process = await programs.exec(keys_to("two", keys))
            assert by_client == by_process, keys
            await asked(control, keys_to("one", [mark]))
            await asked(control, keys_to("two", [mark]))
            one, two = [await same_screen(programs, control, name, mark) for name in ("one", "two")]
            assert one == two, keys
            for name in ("one", "two"):
                await programs.exec(f"tmux send-keys -R -t {name}; tmux clear-history -t {name}")
        assert sent > len(KEYS)
        size = "tmux display-message -p -t one '#{pane_width} #{pane_height}'"
        assert (await programs.exec(size)).stdout == "160 40\n"


async def test_screens_of_any_content_are_the_same() -> None:
    chance = random.Random(2)
    pieces = (
        *("%end 1 1 1", "%begin 1 1 1", "%error", "%exit", "%output %0 x", "\n", "\r\n", "\n\n"),
        *("\x1b[31mred\x1b[0m", "\x1b[2J\x1b[H", "\x1b[10;20H", "\x1b[3A", "\x07", "\x1b]0;t\x07"),
        *("漢字", "e\u0301", "🙂", "x" * 170, "   ", "\t", "\x1b(0qqq\x1b(B", "\x1b[?1049h", "a"),
    )
    async with terminals("one") as (programs, control):
        for number in range(12):
            text = "".join(chance.choices(pieces, k=chance.randint(1, 120)))
            script = f"printf %s {shlex.quote(text)} > /app/out; tmux respawn-pane -k -t one "
            script += f"\"cat /app/out; echo; echo '<{number}>'; exec sleep 99\""
            assert (await programs.exec(script)).return_code == 0
            await same_screen(programs, control, "one", f"<{number}>")


async def test_a_guard_that_is_guessed_ends_nothing() -> None:
    # Every number that the next replies may carry, at every second they may come in.
    program = (
        "now=$(date +%s); for t in $now $((now + 1)) $((now + 2)); do for n in $(seq 255 600); do"
        ' echo "%end $t $n 1"; done; done; echo "<all>"; exec sleep 99'
    )
    async with terminals("one", program=program) as (programs, control):
        screen = await same_screen(programs, control, "one", "<all>")
        assert screen.count("%end") == 3 * 346
        assert (await asked(control, keys_to("one", ["x"]))).return_code == 0


async def test_errors_are_those_of_a_process() -> None:
    async with terminals("one") as (programs, control):
        await asked(control, CAPTURE.format("one"))
        for command in (
            CAPTURE.format("none"),
            keys_to("none", ["x"]),
            "tmux has-session -t none",
            "tmux has-session -t one",
            "tmux send-keys -t one -Z x",
        ):
            by_process = await programs.exec(command)
            assert await asked(control, command) == by_process, command


@pytest.mark.parametrize(
    "command",
    [
        "tmux capture-pane -p -t x | cat",
        "tmux kill-server",
        "true",
        "tmux",
        "tmux send-keys -t x -- 'ls;'",
        "tmux send-keys -t x -- ';' a",
        "tmux send-keys -t x -- 'a\0b'",
    ],
)
def test_other_commands_go_by_a_process(command: str) -> None:
    assert plain_tmux(command) is None


@pytest.mark.parametrize(
    "end", ["pkill -9 -f '^tmux -C'", "tmux detach-client -s one", "tmux kill-server"]
)
async def test_a_client_that_is_ended_answers_nothing(end: str) -> None:
    async with terminals("one") as (programs, control):
        await asked(control, CAPTURE.format("one"))
        await programs.exec(end)
        # Told to end, it may still answer what comes before that.
        async with asyncio.timeout(10):
            while await control.run(["capture-pane", "-p", "-t", "one"]) is not None:
                pass
        assert not control.attached
        assert await control.run(["send-keys", "-t", "one", "--", "x"]) is None


async def test_keys_lost_on_the_way_are_not_sent_again() -> None:
    async with terminals("one") as (programs, control):
        await asked(control, CAPTURE.format("one"))
        await programs.exec("pkill -STOP -x 'tmux: server'")
        sent = asyncio.create_task(control.run(["send-keys", "-t", "one", "--", "x"]))
        looked = asyncio.create_task(control.run(["capture-pane", "-p", "-t", "one"]))
        await asyncio.sleep(0)
        await programs.exec("pkill -KILL -x 'tmux: server'")
        result = await sent
        assert result is not None
        assert (result.return_code, result.stderr) == (1, "lost the tmux client\n")
        assert await looked is None


async def test_a_tmux_that_is_too_old_is_sent_no_keys() -> None:
    async with running_box() as box:
        programs = Programs(box)
        await programs.exec(
            "printf '#!/bin/bash\\necho usage >&2; exit 1\\n' > /usr/local/bin/tmux;"
            " chmod +x /usr/local/bin/tmux"
        )
        control = await TmuxControl.open(programs, "one")
        assert await control.run(["send-keys", "-t", "one", "--", "x"]) is None
        assert await control.run(["capture-pane", "-p", "-t", "one"]) is None
        assert not control.attached


async def test_what_is_too_long_goes_by_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MAX_REPLY_BYTES", 100)
    async with terminals("one", program="yes yes yes yes") as (_, control):
        assert await control.run(["capture-pane", "-p", "-S", "-", "-t", "one"]) is None
        assert not control.attached


async def test_a_frozen_terminal_answers_when_thawed() -> None:
    async with terminals("one") as (programs, control):
        await asked(control, CAPTURE.format("one"))
        await programs.box.freeze()
        sent = asyncio.create_task(asked(control, keys_to("one", ["frozen"])))
        state = await programs.exec("ps -o stat= -p $(pgrep -f '^tmux -C')")
        assert (state.stdout or "").startswith("T")
        assert not sent.done()
        await programs.box.thaw()
        assert (await sent).return_code == 0
        assert "frozen" in await same_screen(programs, control, "one", "frozen")


async def test_a_command_given_up_ends_the_client() -> None:
    async with terminals("one") as (programs, control):
        await programs.box.freeze()
        look = asyncio.create_task(control.run(["capture-pane", "-p", "-t", "one"]))
        await asyncio.sleep(0)
        look.cancel()
        await asyncio.wait((look,))
        assert look.cancelled()
        assert not control.attached
        await programs.box.thaw()


async def test_leaves_no_descriptor() -> None:
    async def once() -> None:
        async with terminals("one") as (_, control):
            await asked(control, CAPTURE.format("one"))
        assert not control.attached
        await asyncio.sleep(0)

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    await once()
    before = descriptors()
    await once()
    assert descriptors() == before


@pytest.mark.uid
@pytest.mark.parametrize("backend", STARTERS)
async def test_every_backend_has_it(backend: str) -> None:
    async with terminals("one", backend=backend) as (programs, control):
        await asked(control, CAPTURE.format("one"))
        await asked(control, keys_to("one", ["hi"]))
        assert "hi" in await same_screen(programs, control, "one", "hi")


def test_an_ordinary_user_has_it(as_user: Callable[[Callable[[], Awaitable[None]]], None]) -> None:
    as_user(lambda: test_every_backend_has_it("namespaces"))
