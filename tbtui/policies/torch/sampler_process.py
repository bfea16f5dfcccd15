"""The sampler's process: `python -m tbtui.policies.torch.sampler_process FD SETTINGS`.

SETTINGS are a `SamplerSettings` as JSON. One thread computes; what it is asked for is taken up
between two steps of its decoder. The process leaves when its channel ends, which is also how it
learns of its parent's death.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable

import msgspec

from tbtui.ipc import Channel, ChannelClosedError, parent_socket
from tbtui.policies.base import PolicyError, PolicyRefusedError, Sample, SampleRequest
from tbtui.policies.policy_process import (
    Done,
    Dropped,
    Failed,
    FromProcess,
    ProcessCall,
    Ready,
    Running,
    ToProcess,
)
from tbtui.policies.torch.batch import Row
from tbtui.policies.torch.decoder import Decoder
from tbtui.policies.torch.loading import quiet_libraries
from tbtui.policies.torch.messages import ReadWeights, SamplerOrder, SamplerResult
from tbtui.policies.torch.sampling import SamplerSettings
from tbtui.policies.torch.versions import load_versions

_SAY_SEC = 0.5
"""Between two signs of work: who waits for a long completion can tell slow from dead."""

type Orders = queue.SimpleQueue[ToProcess[SamplerOrder]]
type Say = Callable[[FromProcess[None, SamplerResult]], None]


class _Worker:
    """The computing thread's work."""

    def __init__(self, decoder: Decoder, orders: Orders, say: Say) -> None:
        self._decoder = decoder
        self._orders = orders
        self._say = say

    def work(self) -> None:
        """Forever."""
        running = steps = 0
        said = time.monotonic()
        while True:
            self._take_orders()
            self._decoder.step()
            steps += 1
            now = time.monotonic()
            if self._decoder.running != running or now - said >= _SAY_SEC:
                running, said = self._decoder.running, now
                self._say(Running(running, steps, self._decoder.news()))

    def _take_orders(self) -> None:
        """All that there are; waits for one when there is nothing else to do."""
        while self._decoder.idle or not self._orders.empty():
            match self._orders.get():
                case ProcessCall(number, SampleRequest() as request):
                    self._decoder.submit(Row.of(number, request))
                case Dropped(number):
                    self._decoder.cancel(number)
                case ProcessCall(number, ReadWeights(version, weights)):
                    try:
                        self._decoder.publish(version, weights)
                    except PolicyError as error:
                        self._say(Failed(number, str(error)))
                    else:
                        self._say(Done(number, None))


def _compute(settings: SamplerSettings, orders: Orders, say: Say) -> None:
    """The computing thread."""

    def answered(number: int, result: Sample | PolicyError) -> None:
        if isinstance(result, PolicyError):
            say(Failed(number, str(result)))
        else:
            say(Done(number, result))

    quiet_libraries()
    try:
        try:
            decoder = Decoder(load_versions(settings), settings, answered)
        except PolicyError as error:
            say(Failed(None, str(error), isinstance(error, PolicyRefusedError)))
            return
        say(Ready(None))
        _Worker(decoder, orders, say).work()
    except BaseException:  # noqa: BLE001 - a thread's failure has to end the process
        # A defect of ours: nothing here can go on from it, and the parent sees the exit.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(70)


async def _main(arguments: list[str]) -> None:
    sock = parent_socket(arguments)
    channel: Channel[
        FromProcess[None, SamplerResult], ToProcess[SamplerOrder]
    ] = await Channel.over(sock)
    settings = msgspec.json.decode(arguments[2], type=SamplerSettings)
    loop = asyncio.get_running_loop()
    orders: Orders = queue.SimpleQueue()

    def post(message: FromProcess[None, SamplerResult]) -> None:
        try:
            channel.post(message)
        except ChannelClosedError:
            return  # the parent left; the loop below sees it too

    def say(message: FromProcess[None, SamplerResult]) -> None:
        loop.call_soon_threadsafe(post, message)

    threading.Thread(target=_compute, args=(settings, orders, say), daemon=True).start()
    async for message in channel:
        orders.put(message)
    # A step under way may take seconds, and isn't wanted any more.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv))
