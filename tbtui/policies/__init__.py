"""A kind of policy (`policy=`): how settings make one, and which of them it refuses.

Nothing heavy is imported here, or by a kind's `__init__.py`: settings are checked before the first
frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from tbtui.sampling import SamplingParams

if TYPE_CHECKING:
    from tbtui.config import RunConfig
    from tbtui.config.values import Problem
    from tbtui.policies.base import Policy


@dataclass(frozen=True, slots=True)
class Backend:
    """One kind of policy."""

    make: Callable[[RunConfig, IO[bytes]], Policy]
    """The policy that the settings describe, not started yet; its log goes to the file."""
    problems: Callable[[RunConfig], Iterable[Problem]]
    """What the settings ask for and this kind can't do, as far as that is known before it has
    started. What depends on the model or the server is `PolicyInfo`'s to say."""
    address: tuple[str, str] | None = None
    """The setting of its server's address, which other kinds don't take, and what such a server is
    called."""
    takes_address: str | None = None
    """The setting of another kind's address that it takes all the same."""
    preflight: Callable[[RunConfig], tuple[str, ...]] | None = None
    """Checks what the policy needs of this machine before anything starts, and returns lines for a
    person; raises `PolicyRefusedError` for what can't work. May read files and ask servers."""


def lost_password(setting: str, address: str | None) -> Iterator[Problem]:
    """For a policy that asks a server at an address that was written down."""
    from tbtui.config.values import error, lacks_password

    if lacks_password(address):
        yield error(
            f"{setting}: passwords are not written down; give it again:"
            f" {setting}={address} with the password in place of ***"
        )


def off_policy_sampling(config: RunConfig, who: str) -> Iterator[Problem]:
    """For a policy that trains: its log-probabilities are those of temperature 1 and all tokens."""
    from tbtui.config.values import warning

    if config.step_limit == 0:
        return
    if config.temperature not in (0, 1):  # 0 is refused
        yield warning(
            f"temperature={config.temperature:g}: {who} trains on log-probabilities at temperature"
            " 1, so what was sampled at another one is off-policy"
        )
    if left_out := truncating(config):
        yield warning(
            f"{left_out[0]}: {who} trains on log-probabilities of all tokens, so what is sampled"
            " without the unlikely ones is off-policy"
        )


def truncating(config: RunConfig) -> list[str]:
    """The settings that leave unlikely tokens out, as they are typed."""
    return [
        f"{name}={value:g}"
        for name, value, off in (
            ("top_p", config.top_p, 1),
            ("top_k", config.top_k or 0, 0),
            ("min_p", config.min_p, 0),
        )
        if value != off
    ]


def sampling_of(config: RunConfig, temperature: float) -> SamplingParams:
    """How trials at this temperature are sampled: all else is the same in training and evaluation,
    so that what is evaluated is what acts."""
    return SamplingParams(
        temperature, config.top_p, config.top_k or 0, config.min_p, tuple(config.stop)
    )
