"""The gpu backend: objects in device memory; a hit is copied on the card, a put over the link."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from kvspill.errors import UsageError
from kvspill.machine.gpu import DeviceError
from kvspill.machine.processors import near_device
from kvspill.records import CANCELLED, GIB, NS_PER_SEC, Completion
from kvspill.storage.base import (
    Backend,
    Capabilities,
    Landing,
    ObjectRef,
    Progress,
    Source,
    WriteItem,
    forgotten,
)
from kvspill.storage.buffers import DataPlane
from kvspill.storage.gpu.conveyor import MOVE_BYTES, TARGET_BYTES
from kvspill.storage.gpu.cuda import Card, CudaCard, Pinned, opening
from kvspill.storage.gpu.direct import DirectFiles, open_cufile
from kvspill.storage.gpu.landing import GpuLanding
from kvspill.storage.gpu.moves import Bank, Call, Hit, Item, Put, Stored, Traffic
from kvspill.storage.gpu.source import GpuSource
from kvspill.storage.lanes import on_thread, on_thread_or_here, post
from kvspill.storage.stamps import BLOCK_BYTES, Bytes, Verify, block_padded
from kvspill.threads import Daemon

_JOIN_SECONDS = 2.0
"""For all cards together, and again to release their memory."""
_JOIN_SECONDS_MIN = 0.05


class Staged(NamedTuple):
    """The registered buffers that demotions to storage go through: one for each piece in flight."""

    pieces: int
    piece_bytes: int


_UNSTAGED = Staged(0, 0)


class GpuBackend(Backend):
    """Entries spread over the arenas of one or several cards (G1, G2)."""

    def __init__(
        self,
        usable_bytes: int,
        devices: Sequence[int] = (0,),
        verify: str = "stamp",
        clock_ns: Callable[[], int] = time.monotonic_ns,
        plane: DataPlane | None = None,
        host_memory: Sequence[Bytes] = (),
        staged: Staged = _UNSTAGED,
        open_card: Callable[[int], Card] | None = None,
        open_files: Callable[[str], DirectFiles] = open_cufile,
        limit_bytes: int = 0,
    ):
        # Rounded up: all of what the cache counts on must fit on the cards together.
        self._blocks = -(-(usable_bytes // BLOCK_BYTES) // len(devices))
        if not self._blocks:
            raise UsageError(
                f"--gpu-mem-gb: {usable_bytes} usable bytes hold no {BLOCK_BYTES}-byte block on each of "
                f"{len(devices)} GPUs; give more or 0"
            )
        self.verify = Verify[verify.upper()]
        self.plane = plane or DataPlane(MOVE_BYTES, 2)
        self.clock_ns = clock_ns
        self._cards: list[Card] = []
        try:
            for index in devices:
                with opening():
                    self._cards.append((open_card or CudaCard)(index))
                _check_free(self._cards[-1], self._blocks * BLOCK_BYTES, limit_bytes // len(devices))
        except UsageError:
            self._close_cards()
            raise
        self._pinned = [Pinned(card) for card in self._cards]
        self._staged = staged
        self._host_memory = [self.plane.base, *host_memory]
        self._banks: list[Bank] = []
        self._objects: dict[tuple[str, int], Stored] = {}
        self._stopped = False
        self._closed = False
        self.hbm, self.inward, self._outward, self._loaded = (Traffic() for _ in range(4))
        self._landing = GpuLanding(self._pinned, self._loaded.count, open_files)

    @property
    def capabilities(self) -> Capabilities:
        names = ", ".join(card.facts.name for card in self._cards)
        return Capabilities(
            name="gpu",
            modelled=False,
            verifies=self.verify is not Verify.OFF,
            description=f"arena of {len(self._cards) * self._blocks * BLOCK_BYTES / GIB:.1f} GiB on {names}",
        )

    def stored_bytes(self, nbytes: int) -> int:
        return block_padded(nbytes)

    async def prepare(self, progress: Progress) -> None:
        """Allocate the arenas and register the host's memory, once (G2)."""
        loop = asyncio.get_running_loop()
        total = sum(memory.nbytes for memory in self._host_memory)

        def work() -> None:
            for pinned in self._pinned:
                self._banks.append(Bank(pinned, self._blocks, self.clock_ns, self._outward, self.verify))
                self._banks[-1].ferry.reserve(*self._staged)
            done = 0
            with near_device(self._cards[0].facts.pci_address):
                for memory in self._host_memory:
                    self._pinned[0].add(memory)
                    done += memory.nbytes
                    post(loop, lambda done=done: progress("registered memory", done, total))  # type: ignore[misc]
            # Here, not at the first put: that is made on the event loop.
            self.plane.fill_some(lambda: not self._stopped)

        try:
            await on_thread("kvspill-gpu", work)
        except DeviceError as error:
            raise UsageError(f"--gpu-mem-gb: the GPU's driver refused: {error}; give less") from error
        for bank in self._banks:
            for conveyor in bank.conveyors:
                conveyor.start()

    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        call = Call(self, [Item(ref) for ref in batch])
        for item in call.items:
            if self._stopped:
                item.error = CANCELLED
            elif (found := self._objects.get((item.ref.key, item.ref.generation))) is not None:
                item.stored = found
            else:
                item.error, item.detail = "ENOENT", f"no object {item.ref.key} on the GPU"
        return await call.carry_out(Hit)

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        call = Call(self, [Item(item.ref, item.source) for item in batch], put=True)
        for item in call.items:
            if self._stopped:
                item.error = CANCELLED
                continue
            item.stored = Stored.make(self._banks, item.ref, self.plane.salt)
            if item.stored is None:
                item.error = "ENOMEM"
                item.detail = f"{item.ref.key} needs {item.ref.nbytes:,} bytes of GPU memory"
        return await call.carry_out(Put)

    async def delete(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return forgotten(batch, self._forget, self.clock_ns)

    def place(self, ref: ObjectRef) -> Stored:
        """Where an object lies; a KeyError where it does not."""
        return self._objects[ref.key, ref.generation]

    def lend(self, ref: ObjectRef) -> Source | None:
        if (ref.key, ref.generation) not in self._objects:
            return None
        shares = self.place(ref).shares
        return GpuSource(self._landing, [(share.bank.ferry, share.stretches) for share in shares])

    def landing(self) -> Landing:
        return self._landing

    def facts(self) -> dict[str, int | float | str]:
        found: dict[str, int | float | str] = {}
        for name, traffic in (
            ("hbm_read", self.hbm),
            ("pcie_in", self.inward),
            ("pcie_out", self._outward),
            ("pcie_load", self._loaded),
        ):
            found[f"{name}_bytes"] = traffic.nbytes
            found[f"{name}_device_seconds"] = traffic.device_ns / 1e9
        card = self._cards[0].facts
        return found | {"gpu": card.name, "driver": card.driver, "pci_address": card.pci_address}

    def cancel(self) -> None:
        self._stopped = True
        for bank in self._banks:
            for conveyor in bank.conveyors:
                conveyor.stop()

    def stuck(self, now_ns: int, older_than_ns: int = NS_PER_SEC) -> list[int]:
        ages = (age for _, age in self._under_way(now_ns))
        return sorted((age for age in ages if age >= older_than_ns), reverse=True)

    def hanging(self, now_ns: int, older_than_ns: int = NS_PER_SEC) -> list[str]:
        return sorted({name for name, age in self._under_way(now_ns) if age >= older_than_ns})

    def _under_way(self, now_ns: int) -> Iterator[tuple[str, int]]:
        """The card and the way of each copy, and its age."""
        for bank in self._banks:
            for name, way in (("hit", bank.hits), ("put", bank.puts), ("demotion", bank.ferry)):
                for age in way.ages_ns(now_ns):
                    yield f"GPU {bank.card.facts.index} ({name})", age
        for index, age in self._landing.ages_ns(now_ns):
            yield f"GPU {index} (load)", age

    async def close(self) -> None:
        self.cancel()
        await on_thread_or_here("kvspill-close", self.close_now)

    def close_now(self) -> None:
        """Wait for the moves and give memory back. A card that does not answer keeps it."""
        self._stopped = True
        if self._closed:
            return
        self._closed = True
        until = time.monotonic() + _JOIN_SECONDS
        ways = [way for bank in self._banks for way in bank.conveyors]
        ended = [way.join(max(_JOIN_SECONDS_MIN, until - time.monotonic())) for way in ways]
        if all(ended):
            releasing = Daemon(self._release, "kvspill-gpu-close")
            try:
                releasing.start()
            except RuntimeError:
                # No further thread is to be had.
                self._release()
            else:
                releasing.join(_JOIN_SECONDS)
        self._objects.clear()

    def _release(self) -> None:
        for card in self._cards:
            # A load or a demotion may still be under way; where the card hangs, this thread is left here.
            with suppress(DeviceError):
                card.synchronize()
        with suppress(DeviceError):
            self._landing.release()
        for pinned in self._pinned:
            pinned.release()
        self._close_cards()

    def _close_cards(self) -> None:
        for card in self._cards:
            # A lost card takes nothing back, but the others do, and the process's end frees the rest.
            with suppress(DeviceError):
                card.close()

    def _forget(self, ref: ObjectRef) -> bool:
        found = self._objects.pop((ref.key, ref.generation), None)
        if found is not None:
            found.give_back()
        return found is not None

    def settle(self, item: Item) -> None:
        """A put is over: make the object readable, or give its room back."""
        if item.stored is None:
            return
        if item.error is not None:
            item.stored.give_back()
            return
        self._forget(item.ref)
        self._objects[item.ref.key, item.ref.generation] = item.stored


def _check_free(card: Card, nbytes: int, budget_bytes: int) -> None:
    """Neither what is allocated nor the budget, of which that is a part, may be more than is free."""
    facts = card.facts
    wanted = max(nbytes + TARGET_BYTES, budget_bytes)
    if wanted > facts.free_bytes:
        raise UsageError(
            f"--gpu-mem-gb: the tier needs {wanted / GIB:.1f} GiB on GPU {facts.index} ({facts.name}), of "
            f"whose {facts.total_bytes / GIB:.1f} GiB only {facts.free_bytes / GIB:.1f} are free; give less"
        )
