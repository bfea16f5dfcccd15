"""Sampling from weights that a server holds, and making them again when it has dropped them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tbtui.policies.base import (
    Datum,
    PolicyError,
    Sample,
    SampleRequest,
    unknown_unless_model,
)
from tbtui.policies.tinker.errors import THE_SERVER, policy_error, status_code

if TYPE_CHECKING:
    import tinker

_GONE = (404, 410)
# Failures that come without a status. The SDK's poller ends with its first such failure, and with
# it every request of its client; a server may fail a request instead of refusing it.
_GONE_WORDS = re.compile(
    r"retrieve_futures polling failed|(?:sampl|weights|session|checkpoint|model)\S* .*"
    r"(?:not found|not loaded|no longer|expired|deleted|does not exist|doesn't exist|evicted)",
    re.IGNORECASE | re.DOTALL,
)
SEEDS = 2**31
"""A server's seeds are smaller than this: SkyRL's are, and others' limits are unknown."""
_CONCURRENT_SCORES = 64


class SamplerGoneError(PolicyError):
    """The server no longer has the weights that were to be sampled from."""


@dataclass(frozen=True, eq=False, slots=True)
class Sampler:
    """Weights of one version, published on the server."""

    client: tinker.SamplingClient
    version: int
    """Optimiser steps behind the weights."""

    def ask(
        self, request: SampleRequest, stop: Sequence[int]
    ) -> asyncio.Future[tinker.SampleResponse]:
        """Submit a request; cancelling the future cancels it at the server too."""
        import tinker

        prompt = tinker.ModelInput.from_ints(list(request.prompt_ids))
        parameters = tinker.SamplingParams(
            max_tokens=request.max_tokens,
            seed=request.seed % SEEDS,
            # Ids or texts, never both: texts are looked for in what was drawn.
            stop=list(stop),
            temperature=request.sampling.temperature,
            top_p=request.sampling.top_p,
            top_k=request.sampling.top_k or -1,
        )
        return asyncio.wrap_future(self.client.sample(prompt, 1, parameters).future())

    def read(self, response: tinker.SampleResponse, request: SampleRequest) -> Sample:
        """Raises `PolicyError` for an answer that can't be trained on."""
        if not response.sequences:
            raise PolicyError("sampling: the Tinker server drew no sequence")
        sequence = response.sequences[0]
        tokens, logprobs = sequence.tokens_np, sequence.logprobs_np
        if tokens is None or not len(tokens):
            raise PolicyError("sampling: the Tinker server drew no token")
        if logprobs is None or len(logprobs) != len(tokens) or not np.isfinite(logprobs).all():
            raise PolicyError(
                "sampling: the Tinker server's answer lacks the log-probability of a token"
            )
        if len(tokens) > request.max_tokens:
            raise PolicyError(
                f"sampling: the Tinker server drew {len(tokens)} tokens;"
                f" max_tokens={request.max_tokens}"
            )
        return Sample(
            completion_ids=tuple(tokens.tolist()),
            # A copy: the array is a view of the whole answer.
            logprobs=np.array(logprobs, np.float32),
            stop_reason=sequence.stop_reason,
            weights_version=self.version,
            cached_tokens=response.prompt_cache_hit_tokens,
            # Of which distribution they are, servers differ in.
            model_logprobs=unknown_unless_model(request.sampling, len(tokens)),
        )

    async def score(self, data: Sequence[Datum]) -> tuple[npt.NDArray[np.float32], ...]:
        """Each datum's log-probabilities on its mask under these weights.

        Raises:
            SamplerGoneError: see there.
            PolicyError: the server can't do it.
        """
        slots = asyncio.Semaphore(_CONCURRENT_SCORES)

        async def one(datum: Datum) -> npt.NDArray[np.float32]:
            async with slots:
                return await self._score_one(datum)

        return tuple(await asyncio.gather(*map(one, data)))

    async def _score_one(self, datum: Datum) -> npt.NDArray[np.float32]:
        import tinker

        if not datum.mask.any():
            return np.zeros(0, np.float32)
        try:
            given = await self.client.compute_logprobs(
                tinker.ModelInput.from_ints(datum.tokens.tolist())
            )
        except Exception as error:
            raise sampling_error(error, "the reference's log-probabilities") from error
        # SkyRL leaves out the first token's, which has none; the hosted service says None.
        values = np.array([np.nan] * (len(datum.tokens) - len(given)) + list(given), np.float32)
        if len(values) != len(datum.tokens) or not np.isfinite(values[datum.mask]).all():
            raise PolicyError(
                f"kl_penalty_coef: the Tinker server gave {len(given)} log-probabilities of a"
                f" sequence of {len(datum.tokens)} tokens; it can't be the reference"
            )
        return values[datum.mask]


def sampling_error(error: Exception, doing: str, server: str = THE_SERVER) -> PolicyError:
    """As `policy_error`, for requests to a sampler."""
    if isinstance(error, PolicyError):
        return error
    found = policy_error(error, doing, training=False, server=server)
    if status_code(error) in _GONE or _GONE_WORDS.search(str(error)):
        return SamplerGoneError(str(found))
    return found


class CurrentSampler:
    """The sampler of the weights published last.

    When the server has dropped them, they are published anew, once for all requests that wait for
    them.
    """

    def __init__(self, renew: Callable[[], Awaitable[Sampler]]) -> None:
        """`renew` publishes the trained weights; it raises `PolicyLostError` when they are gone
        too."""
        self._renew = renew
        self._current: Sampler | None = None
        self._renewing: asyncio.Task[Sampler] | None = None

    @property
    def sampler(self) -> Sampler:
        if self._current is None:
            raise PolicyError("the policy has not been started")
        return self._current

    @property
    def version(self) -> int | None:
        """Version of the weights published last; None: there are none."""
        return None if self._current is None else self._current.version

    def publish(self, sampler: Sampler) -> None:
        """From now on `sampler` is asked, unless it is older than the current one."""
        if self._current is None or sampler.version >= self._current.version:
            self._current = sampler

    def replace(self, sampler: Sampler) -> None:
        """From now on `sampler` is asked, an older one too: an earlier state was loaded."""
        self._current = sampler

    async def instead_of(self, gone: Sampler) -> Sampler:
        """The sampler to ask now that the server has dropped `gone`."""
        if self._renewing is None and self._current is not gone and self._current is not None:
            return self._current
        if self._renewing is None:
            self._renewing = asyncio.ensure_future(self._renewed())
            self._renewing.add_done_callback(self._settled)
        return await asyncio.shield(self._renewing)

    async def _renewed(self) -> Sampler:
        sampler = await self._renew()
        self.publish(sampler)
        return self.sampler

    def _settled(self, renewing: asyncio.Task[Sampler]) -> None:
        self._renewing = None
        if not renewing.cancelled():
            renewing.exception()  # those that waited have it; there may be none
