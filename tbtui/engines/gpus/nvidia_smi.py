"""The GPUs of another machine: `nvidia-smi` there, through `ssh`."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import DEVNULL, PIPE

from tbtui.journal.events import GpuMeasured, GpusMeasured

_FIELDS = (
    *("index", "name", "utilization.gpu", "memory.used", "memory.total"),
    *("power.draw", "temperature.gpu"),
)
_NUMBERS = 5
"""Fields behind the name, which may have commas in it."""
COMMAND = f"nvidia-smi --query-gpu={','.join(_FIELDS)} --format=csv,noheader,nounits"
_CONNECT_SEC = 5
_ANSWER_SEC = 15.0
_MOST_BYTES = 1 << 16
_LONGEST_REASON = 200


class UnreadableError(Exception):
    """What a machine answered is no table of GPUs; the message is one line for a person."""


async def remote_gpus(host: str, answer_sec: float = _ANSWER_SEC) -> GpusMeasured:
    """Ask `host`, a name that `ssh` knows; one that can't be asked is told as such. Never asks a
    person for anything: a key must open the machine."""
    try:
        process = await asyncio.create_subprocess_exec(
            "ssh",
            *("-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SEC}"),
            *("--", host, COMMAND),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            # Our terminal is not for it to talk to, and our ctrl-c not for it to hear.
            start_new_session=True,
        )
    except OSError as error:
        return GpusMeasured(host=host, gpus=(), unreachable=f"ssh can't be run: {error.strerror}")
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(answer_sec):
            out, err = await asyncio.gather(_all(process.stdout), _all(process.stderr))
            status = await process.wait()
    except TimeoutError:
        return GpusMeasured(
            host=host, gpus=(), unreachable=f"no answer through ssh in {answer_sec:g} s"
        )
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if status != 0:
        reason = _last_line(err) or _last_line(out) or f"ssh ended with status {status}"
        return GpusMeasured(host=host, gpus=(), unreachable=reason)
    try:
        return GpusMeasured(host=host, gpus=read_table(out))
    except UnreadableError as error:
        return GpusMeasured(host=host, gpus=(), unreachable=str(error))


def read_table(text: str) -> tuple[GpuMeasured, ...]:
    """The rows that `COMMAND` prints; what a login shell prints around them is passed over.

    Raises:
        UnreadableError: there is no row at all.
    """
    gpus = tuple(gpu for line in text.splitlines() if (gpu := _row(line)) is not None)
    if not gpus:
        said = _last_line(text)
        raise UnreadableError(f"nvidia-smi says: {said}" if said else "nvidia-smi says nothing")
    return gpus


def _row(line: str) -> GpuMeasured | None:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) < len(_FIELDS) or not cells[0].isdecimal():
        return None
    use, used, total, power, temperature = (_number(cell) for cell in cells[-_NUMBERS:])
    return GpuMeasured(
        index=int(cells[0]),
        name=", ".join(cells[1:-_NUMBERS]),
        utilisation=None if use is None else use / 100,
        memory_used_mib=_whole(used),
        memory_total_mib=_whole(total),
        power_watt=_whole(power),
        temperature_c=_whole(temperature),
    )


def _number(cell: str) -> float | None:
    """None for `[N/A]`, `[Not Supported]`, `[Unknown Error]` and the like."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


async def _all(stream: asyncio.StreamReader) -> str:
    """As much as anybody will look at; the rest is read and dropped, for ssh must not wait."""
    kept = bytearray()
    while chunk := await stream.read(_MOST_BYTES):
        kept += chunk[: _MOST_BYTES - len(kept)]
    return kept.decode("utf-8", "replace")


def _last_line(text: str) -> str:
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return lines[-1][:_LONGEST_REASON] if lines else ""
