"""Serves hand-made requests in virtual time: the engine, an I/O model and a cache over modelled tiers."""

from dataclasses import dataclass, field
from typing import Any, cast

from kvspill.cache.cache import Cache
from kvspill.cache.options import CacheOptions
from kvspill.cache.tier import TierState
from kvspill.models.groups import KvSize
from kvspill.records import QoS, Request, Tier
from kvspill.serving.engine import Engine, EngineOptions
from kvspill.serving.generation import Generation
from kvspill.serving.io_models import IoModel, IoOptions, make_io_model
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.profiles import NULL, DeviceModel
from kvspill.workload.base import Workload
from kvspill.world import World, run_virtual
from sim.harness import Oracle, make_policy

TOKEN_BYTES = 4096
EVEN = KvSize.even(TOKEN_BYTES)
SLOW = DeviceModel(1.0, 1.0, read_latency_us=100, write_latency_us=100, delete_latency_us=10)


class Listed:
    """A workload of given requests; each user's in the order of their times."""

    def __init__(self, requests: Any) -> None:
        self._sessions: dict[int, list[Request]] = {}
        for request in requests:
            self._sessions.setdefault(request.user, []).append(request)
        self.users = max(self._sessions, default=0) + 1

    def session(self, user: int, start_ns: int = 0) -> Any:  # noqa: ARG002 - the times are given
        return iter(self._sessions.get(user, ()))


@dataclass
class Replayed:
    """What came of a replay."""

    oracle: Oracle = field(default_factory=Oracle)
    model: IoModel | None = None
    cache: Cache | None = None
    engine: Engine | None = None

    def bytes_of(self, verb: Any, *purposes: Any, tier: Any = None) -> Any:
        return sum(
            op.nbytes
            for op in self.oracle.ops
            if op.verb == verb
            and op.completion.error is None
            and (not purposes or op.purpose in purposes)
            and tier in (None, op.tier)
        )

    def keys_of(self, verb: Any, purpose: Any) -> Any:
        return [op.key for op in self.oracle.ops if (op.verb, op.purpose) == (verb, purpose)]


def request(
    user: int = 0, blocks: Any = (), at_ms: float = 0, context: int = 0, turn: int = 0, **more: Any
) -> Any:
    """A request whose context is these blocks of ten tokens each."""
    context = context or 10 * len(blocks)
    return Request(
        user,
        0,
        turn,
        QoS.BATCH,
        round(at_ms * 1_000_000),
        0,
        context,
        5,
        blocks=tuple(blocks),
        block_tokens=10,
        **more,
    )


def replay(
    requests: Any,
    name: str = "prefix",
    dram_blocks: int = 0,
    storage_blocks: int = 1_000_000,
    device: Any = NULL,
    policy: str = "lru",
    observer: Any = None,
    generation: Any = None,
    demote_min_uses: int = 0,
    wrap: Any = lambda backend: backend,
    kv: KvSize = EVEN,
    **options: Any,
) -> Any:
    """Serve the requests to their end; tiers hold so many blocks of ten tokens."""
    replayed = Replayed()
    observer = observer or replayed.oracle

    async def main(world: World) -> None:
        tiers = []
        for tier, blocks in ((Tier.CPU, dram_blocks), (Tier.STORAGE, storage_blocks)):
            if blocks:
                nbytes = blocks * 10 * TOKEN_BYTES
                model = NULL if tier is Tier.CPU else device
                backend = wrap(ModelledBackend("modelled", model, world.now_ns))
                made = make_policy(policy, nbytes, leaf_first=True)
                tiers.append(TierState(tier, backend, nbytes, nbytes, made, evicts=policy != "none"))
        cache_options = CacheOptions(in_blocks=name == "prefix", demote_min_uses=demote_min_uses)
        replayed.cache = Cache(tiers, observer, world.now_ns, cache_options)
        replayed.model = make_io_model(name, IoOptions(kv, block_tokens=10, **options))
        replayed.engine = Engine(
            world,
            cast(Workload, Listed(requests)),
            replayed.model,
            replayed.cache,
            generation or Generation(0),
            observer,
            EngineOptions(servers=100, duration_ns=None),
            0,
        )
        await replayed.engine.run(lambda: None)
        await replayed.cache.drain()

    run_virtual(main, 1)
    return replayed
