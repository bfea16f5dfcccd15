"""Freezes, thaws and keeps alive a trial's sandbox.

An environment that can stop its processes itself, by a control group or its engine, is asked to. In
any other Linux one they are sent signals, from within.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Any

from harbor.environments.base import BaseEnvironment

from tbtui.rollout.control import TimeLeft
from tbtui.rollout.environments.base import Freezable
from tbtui.rollout.environments.lifetime import lifetime

_TIMEOUT_SECONDS = 60


class FreezeUnsupported(RuntimeError):
    """This environment's processes can't be stopped, or not be let go; one line says why."""


async def freeze(environment: BaseEnvironment) -> None:
    """Stop every process in the environment. What is stopped already stays so.

    Raises:
        FreezeUnsupported: nothing is stopped then.
    """
    if isinstance(environment, Freezable):
        await environment.freeze()
    else:
        await freeze_by_signals(environment)


async def thaw(environment: BaseEnvironment) -> None:
    """Let everything go on that `freeze` stopped.

    Raises:
        FreezeUnsupported: some of it is stopped still.
    """
    if isinstance(environment, Freezable):
        await environment.thaw()
    else:
        await thaw_by_signals(environment)


async def freeze_by_signals(environment: BaseEnvironment) -> None:
    """`freeze` for an environment with a POSIX shell, /proc and commands run as root.

    Pid 1 and the processes that carry out the command itself are left alone: the environment is
    lost without them. Commands run after this are not stopped.
    """
    problem = await _run(environment, _FREEZE)
    if problem is not None:
        # Half stopped would look like a hang of the agent's doing.
        await _run(environment, _THAW)
        raise FreezeUnsupported(problem)


async def thaw_by_signals(environment: BaseEnvironment) -> None:
    """Undo `freeze_by_signals`; what was stopped before that (by Ctrl-Z, say) stays stopped."""
    problem = await _run(environment, _THAW)
    if problem is not None:
        raise FreezeUnsupported(problem)


async def _run(environment: BaseEnvironment, script: str) -> str | None:
    """What went wrong, or None."""
    from harbor.models.task.config import TaskOS

    if environment.task_env_config.os == TaskOS.WINDOWS:
        return "processes can't be stopped in Windows"
    result = await environment.exec(script, user="root", timeout_sec=_TIMEOUT_SECONDS)
    if result.return_code == 0:
        return None
    said = (result.stderr or result.stdout or "").strip().splitlines()
    return said[-1] if said else f"the command that signals ended with {result.return_code}"


_COMMON = r"""
fail() { echo "$1" >&2; exit 1; }
record=/var/tmp/.tbtui-frozen
[ -r /proc/self/status ] || fail 'no /proc to find the processes by'
look() {
    state= parent=0
    while read -r key value rest; do
        case $key in
            State:) state=$value ;;
            PPid:) parent=$value; return ;;
        esac
    done 2>/dev/null < "/proc/$1/status"
}
spared=' 1 '
next=$$
while [ "$next" -gt 1 ]; do spared="$spared$next "; look "$next"; next=$parent; done
# Lists what may be signalled, and says whose child each is.
survey() {
    running=' ' stopped=' '
    for directory in /proc/[0-9]*; do
        pid=${directory#/proc/}
        case $spared in *" $pid "*) continue ;; esac
        look "$pid" 2>/dev/null
        case $state in
            ''|Z|X|x) continue ;;
            T|t) stopped="$stopped$pid " ;;
            *) running="$running$pid " ;;
        esac
        eval "parent_of_$pid=$parent"
    done
}
"""

# Parents first: a shell that saw its child stop before it was stopped itself would take that for
# Ctrl-Z, and its prompt would be back when it goes on. What is stopped already is written down
# before anything else, so that being cut off at any point leaves a state that `thaw` can mend.
_FREEZE = (
    _COMMON
    + r"""
survey
if [ ! -e "$record" ]; then
    { echo "$stopped" > "$record"; } 2>/dev/null || fail "$record can't be written"
fi
round=0 calm=0
while [ "$calm" -lt 2 ] && [ "$round" -lt 200 ]; do
    round=$((round + 1))
    for pid in $running; do
        if [ "$round" -lt 50 ]; then
            eval "parent=\$parent_of_$pid"
            case $running in *" $parent "*) continue ;; esac
        fi
        kill -STOP "$pid" 2>/dev/null && continue
        look "$pid" 2>/dev/null
        case $state in
            ''|Z|X|x) ;;
            *) fail "process $pid can't be stopped: commands don't run as root here" ;;
        esac
    done
    # One that waits for a processor, or a disk, stops when it has had it.
    [ "$round" -lt 20 ] || sleep 0.05 2>/dev/null || sleep 1
    survey
    # Twice, because a process may be born after the list is made, of one that then stops.
    case $running in ' ') calm=$((calm + 1)) ;; *) calm=0 ;; esac
done
[ "$running" = ' ' ] || fail "processes that don't stop:$running"
"""
)

# Children first, for the same reason.
_THAW = (
    _COMMON
    + r"""
[ -e "$record" ] || exit 0
read -r left < "$record"
left=" $left "
round=0
while [ "$round" -lt 100 ]; do
    round=$((round + 1))
    survey
    ours= parents=' '
    for pid in $stopped; do
        case $left in *" $pid "*) continue ;; esac
        eval "parent=\$parent_of_$pid"
        ours="$ours $pid" parents="$parents$parent "
    done
    [ -n "$ours" ] || break
    for pid in $ours; do
        if [ "$round" -lt 50 ]; then
            case $parents in *" $pid "*) continue ;; esac
        fi
        kill -CONT "$pid" 2>/dev/null
    done
done
[ -z "$ours" ] || fail "processes that don't go on:$ours"
rm -f "$record"
"""
)


_LONG_SEC = 7200.0
"""A sandbox that lives so much longer needs nothing yet."""

_log = logging.getLogger(__name__)


class HeldSandbox:
    """Make it when the sandbox has started: a total lifetime counts from then."""

    def __init__(self, environment: BaseEnvironment, kwargs: Mapping[str, Any]) -> None:
        """`kwargs`: what the environment was made with (`environment_kwargs`)."""
        self._environment = environment
        self._lifetime = lifetime(type(environment), kwargs)
        self._ends = math.inf
        if self._lifetime is not None:
            self._ends = time.monotonic() + self._lifetime.seconds

    def used(self) -> None:
        """A command was run; an idle time begins anew."""
        if self._lifetime is not None and self._lifetime.idle:
            self._ends = time.monotonic() + self._lifetime.seconds

    async def freeze(self) -> None:
        await freeze(self._environment)

    async def thaw(self) -> None:
        await thaw(self._environment)

    async def keep_alive(self) -> TimeLeft | None:
        """How long it still lives, after a command where that prolongs it."""
        mine = self._lifetime
        if mine is None:
            return None
        left = self._ends - time.monotonic()
        if left > _LONG_SEC:
            return TimeLeft(left, secured=True)
        if mine.idle and await self._runs():
            self.used()
            return TimeLeft(mine.seconds, secured=True)
        return TimeLeft(left, secured=False, note=mine.setting)

    async def _runs(self) -> bool:
        """Whether a command could be run: that is activity."""
        try:
            await self._environment.exec("true", timeout_sec=_TIMEOUT_SECONDS)
        except Exception as error:  # noqa: BLE001  any SDK's; it is not kept alive then
            _log.warning("%s: not kept alive: %r", self._environment.session_id, error)
            return False
        return True
