"""The software ceiling: what this harness does on this machine when the device takes no time at all."""

from collections.abc import Iterator

from kvspill.config import Config
from kvspill.measure.recorder import Recorder
from kvspill.records import GIB, NS_PER_SEC, UNLIMITED_BYTES, Request, SharedPrefix, Tier, Verb
from kvspill.result.honesty import Ceiling
from kvspill.run.build import build_cache, build_engine
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.profiles import NULL
from kvspill.workload.base import Altered
from kvspill.workload.registry import make_workload
from kvspill.world import World


class _Impatient(Altered):
    """The same users without a pause between answer and question: they keep every server busy."""

    def session(self, user: int, start_ns: int = 0) -> Iterator[Request]:
        for request in self._inner.session(user, start_ns):
            yield request._replace(intended_ns=start_ns, think_ns=0)

    def preload(self) -> Iterator[SharedPrefix]:
        return iter(())


_USERS_PER_SERVER_MAX = 2
"""Users without a pause keep all servers busy; more of them would only wait, and take long to start."""
_SECONDS = 0.6
_ATTEMPTS = 3
"""A moment may be disturbed; the best of several is what this machine can do."""


async def null_ceiling(config: Config, world: World, seconds: float = _SECONDS) -> Ceiling:
    """The most that this program does with this configuration's requests on an infinitely fast device."""
    found = [await _one_moment(config, world, seconds / _ATTEMPTS) for _attempt in range(_ATTEMPTS)]
    return max(found, key=lambda ceiling: ceiling.operations_per_sec or 0.0)


async def _one_moment(config: Config, world: World, seconds: float) -> Ceiling:
    servers = config.server_count
    config = config.changed(
        num_users=min(config.num_users, _USERS_PER_SERVER_MAX * servers),
        servers=servers,
        duration=seconds,
        warmup=0,
        max_requests=None,
        arrival="closed",
        request_rate=None,
        decode_only=False,
        generation_mode="none",
    )
    start_ns = world.now_ns()
    recorder = Recorder(start_ns, start_ns + round(seconds * NS_PER_SEC))
    backend = ModelledBackend("null", NULL, world.now_ns)
    limits = {Tier.STORAGE: UNLIMITED_BYTES}
    cache = build_cache(config, world, recorder, {Tier.STORAGE: backend}, limits)
    workload = _Impatient(make_workload(config, world, UNLIMITED_BYTES))
    engine = build_engine(config, world, recorder, cache, start_ns, workload)
    await engine.run(lambda: None)
    lanes = [recorder.lane(Tier.STORAGE, verb) for verb in (Verb.READ, Verb.WRITE)]
    return Ceiling(
        requests_per_sec=engine.completed / seconds,
        operations_per_sec=sum(lane.op_count for lane in lanes) / seconds,
        gib_per_sec=sum(lane.byte_count for lane in lanes) / GIB / seconds,
    )
