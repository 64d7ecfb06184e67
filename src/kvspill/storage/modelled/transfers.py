"""Transfers in model time, and the batches they are answered in."""

import asyncio
import math
from collections.abc import Callable, Sequence

from kvspill.records import Completion


class Transfer:
    """Entries of one size on their way: first they wait their turn, then the latency, then share the device.

    Equal entries of a batch begin and end together, so one transfer stands for all of them: each has a share
    of its own in the device, but they cost the model one event.
    """

    __slots__ = (
        "alone",
        "batch",
        "chained",
        "completion",
        "count",
        "host_ns",
        "latency_ns",
        "missing",
        "nbytes",
        "started_ns",
        "submitted_ns",
        "tag",
        "work_ns",
    )

    def __init__(
        self,
        batch: "Batch",
        submitted_ns: int,
        work_ns: float,
        latency_ns: float,
        nbytes: int,
        missing: bool = False,
    ):
        self.batch = batch
        self.count = 1
        self.alone = False
        """True where each entry has one lane at most."""
        self.chained = 1
        """Entries that one lane moves one after another; they have the transfer's bytes together."""
        self.submitted_ns = submitted_ns
        self.work_ns = work_ns
        self.latency_ns = latency_ns
        self.nbytes = nbytes
        self.missing = missing
        self.started_ns = submitted_ns
        self.host_ns = 0
        """What it takes on a lane besides the device's own time: opening, making, renaming."""
        self.tag = math.inf
        self.completion: Completion | None = None

    def finish(self, at_ns: float, error: str | None = None, moved: int | None = None) -> None:
        if self.completion is not None:
            return
        started_ns, end_ns = self.started_ns, round(at_ns)
        if end_ns < started_ns:
            end_ns = started_ns
        pieces = () if moved is None else ((started_ns, end_ns, moved),)
        device_ns = max(0, end_ns - started_ns - self.host_ns)
        self.completion = Completion(self.submitted_ns, started_ns, end_ns, device_ns, pieces, error)
        self.batch.done(self.count)

    def split(self, count: int) -> "Transfer":
        """Keep the first `count` entries; the others become a transfer of their own, behind this one."""
        others = Transfer(self.batch, self.submitted_ns, self.work_ns, self.latency_ns, self.nbytes)
        others.count, others.alone = self.count - count, self.alone
        others.started_ns, others.host_ns = self.started_ns, self.host_ns
        self.count = count
        transfers = self.batch.transfers
        transfers.insert(transfers.index(self) + 1, others)
        return others


def resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Batch:
    """Transfers that were asked for together and are answered together."""

    __slots__ = ("_answer", "_done", "_left", "chain", "transfers")

    def __init__(self, size: int, answer: "Callable[[asyncio.Future[None]], None]"):
        """Answer: what resolves the future, at once or later, when the last of them is done."""
        self.transfers: list[Transfer] = []
        self.chain: Sequence[int] = ()
        """Bytes of the entries that move one after another, as one transfer."""
        self._left = size
        self._answer = answer
        self._done: asyncio.Future[None] | None = None

    def join_as_one(self) -> None:
        """One transfer stands for all of them."""
        self._left = 1

    def done(self, count: int) -> None:
        self._left -= count
        if self._left == 0 and self._done is not None:
            self._answer(self._done)

    async def completions(self) -> list[Completion]:
        """Wait for the last of them."""
        if self._left:
            self._done = asyncio.get_running_loop().create_future()
            await self._done
        # Batch and transfers know each other: taken apart here, they are freed without the collector.
        transfers, self.transfers = self.transfers, []
        found: list[Completion] = []
        for transfer in transfers:
            assert transfer.completion is not None, "the batch is over"
            found += [transfer.completion] * transfer.count
        return found
