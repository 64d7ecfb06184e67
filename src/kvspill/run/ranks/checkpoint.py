"""What is kept of a load that several ranks are at: a result of all that was measured so far (R4)."""

import contextlib
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from kvspill.config import Config
from kvspill.errors import KvspillError
from kvspill.outputs import beside
from kvspill.result.parts import Part, packed, unpacked
from kvspill.result.result import write_result
from kvspill.run.ranks import Ranks, share_of
from kvspill.run.stages import Stages
from kvspill.run.whole import whole_result
from kvspill.serving.engine import Engine
from kvspill.serving.servers import servers_for
from kvspill.threads import Daemon
from kvspill.world import World

UNDER_WAY = "it was still under way when this was written"
_WRITING_SECONDS_MAX = 3.0


def checkpoint_path(result: Path) -> Path:
    """Where the checkpoint of a run stands, beside its result; gone once the result is there."""
    return beside(result.with_name(result.stem), ".incomplete.json")


def so_far(
    world: World,
    config: Config,
    ranks: Ranks,
    stages: Stages,
    engine: Engine,
    device: tuple[str, ...] = (),
    storage: tuple[str, ...] = (),
) -> bytes | None:
    """What this rank has measured by now, in a form that travels; None before its first window.

    device, storage: what the rank's part says of where its entries lie.
    """
    found = stages.so_far(world.now_ns())
    if found is None:
        return None
    recorder, facts = found
    users = share_of(config, ranks).of(engine.users)
    servers = servers_for(users, config.servers)
    part = Part(recorder, facts, engine.planned, users, servers, origin_ns=engine.start_ns)
    part.rank, part.host = ranks.index, socket.gethostname()
    part.device, part.storage = device, storage
    return packed(part)


class Keeper:
    """Writes the parts of all ranks as one incomplete result, on a thread: the load must not wait for it."""

    def __init__(self, config: Config, size: int, path: Path):
        self._config = config
        self._size = size
        self._path = path
        self._thread: Daemon | None = None

    def keep(self, packed: Mapping[int, bytes]) -> None:
        """Write what these ranks measured so far, unless the last time is not over yet."""
        if self._thread is None or not self._thread.is_alive():
            thread = Daemon(partial(self._write, dict(packed)), "kvspill-checkpoint")
            # Where no further thread is to be had, the last checkpoint stands.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def finish(self) -> None:
        """Nothing is written from now on."""
        if self._thread is not None:
            self._thread.join(_WRITING_SECONDS_MAX)

    def _write(self, packed: Mapping[int, bytes]) -> None:
        parts = [unpacked(packed[rank]) for rank in sorted(packed)]
        missing = {rank: "it has not reported yet" for rank in range(self._size) if rank not in packed}
        result = whole_result(self._config, parts, size=self._size, missing=missing, ended=UNDER_WAY)
        # A disk that is full now may not be at the end; the result itself says so aloud.
        with contextlib.suppress(KvspillError):
            write_result(self._path, result, named=False)
