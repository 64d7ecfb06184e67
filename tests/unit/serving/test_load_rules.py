"""The rules of the load (L1-L4) and of a request's account (S1, S9), in virtual time."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvspill.cache.cache import Cache
from kvspill.config import Config
from kvspill.models.groups import KvSize
from kvspill.records import NS_PER_SEC, QoS, Request, Tier
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.trial import run_trial
from kvspill.serving.engine import Engine, EngineOptions
from kvspill.serving.generation import Generation
from kvspill.serving.io_models import IoOptions, make_io_model
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.profiles import DeviceModel
from kvspill.world import World, run_virtual
from sim.harness import Oracle, make_tier

BYTES_PER_TOKEN = 1 << 20
MS = 1_000_000


class Script:
    """A workload of given requests, one list per user."""

    elastic = False

    def __init__(self, *sessions: Any) -> None:
        self._sessions = sessions
        self.users = len(sessions)

    def session(self, user: int, _start_ns: int = 0) -> Any:
        return iter(self._sessions[user])

    def preload(self) -> Any:
        return iter(())

    def facts(self) -> Any:
        return {}


def ask(
    user: int,
    conversation: int = 0,
    turn: int = 0,
    at_ms: float = 0,
    qos: Any = QoS.BATCH,
    context: int = 10,
    generate: int = 10,
    history: Any = (),
    think_ms: int = 0,
) -> Any:
    when_ns, think_ns = round(at_ms * MS), think_ms * MS
    return Request(
        user, conversation, turn, qos, when_ns, think_ns, context, generate, history_tokens=tuple(history)
    )


def serve(
    workload: Any,
    *,
    servers: int,
    duration: Any = None,
    gib_per_sec: float = 1.0,
    ms_per_token: int = 0,
    left: str = "unfinished",
    **options: Any,
) -> Any:
    async def main(world: World) -> Any:
        oracle = Oracle()
        backend = ModelledBackend("modelled", DeviceModel(gib_per_sec, gib_per_sec), world.now_ns)
        cache = Cache([make_tier(Tier.STORAGE, backend, 1 << 50)], oracle, world.now_ns)
        engine = Engine(
            world,
            workload,
            make_io_model("mlperf", IoOptions(KvSize.even(BYTES_PER_TOKEN))),
            cache,
            Generation(ms_per_token * MS),
            oracle,
            EngineOptions(
                servers=servers,
                duration_ns=None if duration is None else round(duration * NS_PER_SEC),
                **options,
            ),
            world.now_ns(),
        )
        waits: list[Any] = []
        await engine.run(lambda: waits.extend(zip(*getattr(engine, left)(world.now_ns()), strict=True)))
        return engine, oracle, waits

    return run_virtual(main, seed=1)


def served(oracle: Any) -> Any:
    return [
        (row.request.user, row.request.turn) for row in sorted(oracle.requests, key=lambda r: r.started_ns)
    ]


def test_l1_the_queue_serves_class_before_intended_time_before_user() -> None:
    first = ask(0, at_ms=0, qos=QoS.BATCH)
    late = [
        ask(1, at_ms=4, qos=QoS.BATCH),
        ask(2, at_ms=6, qos=QoS.INTERACTIVE),
        ask(3, at_ms=2, qos=QoS.RESPONSIVE),
        ask(4, at_ms=2, qos=QoS.BATCH),
        ask(5, at_ms=2, qos=QoS.RESPONSIVE),
    ]
    _engine, oracle, _ = serve(Script([first], *([one] for one in late)), servers=1)
    assert [user for user, _turn in served(oracle)] == [0, 2, 3, 5, 4, 1]


@pytest.mark.parametrize(("gib_per_sec", "added_s"), [(1000.0, 0.0), (1e-6, 4.0)])
def test_s11_a_stay_counts_storage_that_still_goes_on_and_no_generation(
    gib_per_sec: float, added_s: float
) -> None:
    load = Script([ask(0, at_ms=1000, generate=100)])
    given: dict[str, Any] = {"servers": 1, "duration": 5, "ms_per_token": 1000, "closed": True}
    _engine, _oracle, ((_qos, stay_ns, added_ns),) = serve(
        load, gib_per_sec=gib_per_sec, left="stays", **given
    )
    assert stay_ns == 4 * NS_PER_SEC
    assert added_ns / NS_PER_SEC == pytest.approx(added_s, abs=0.1)
    _engine, _oracle, ((_qos, wait_ns, _added_ns),) = serve(load, gib_per_sec=gib_per_sec, **given)
    assert wait_ns == 0


@pytest.mark.parametrize("gib_per_sec", [0.01, 1.0, 1000.0])
def test_a_planned_order_is_that_of_storage_that_takes_no_time(gib_per_sec: float) -> None:
    """Alone, storage decides which requests wait together; by plan they come one after the other (L1)."""
    load = Script([ask(0)], [ask(1, at_ms=4)], [ask(2, at_ms=6, qos=QoS.INTERACTIVE)])
    _engine, oracle, _ = serve(load, servers=1, gib_per_sec=gib_per_sec, planned=True)
    assert [user for user, _turn in served(oracle)] == [0, 1, 2]
    _engine, oracle, _ = serve(load, servers=1, gib_per_sec=gib_per_sec, planned=True, ms_per_token=1)
    assert [user for user, _turn in served(oracle)] == [0, 2, 1]
    intended_ns = {row.request.user: row.intended_ns for row in oracle.requests}
    assert intended_ns == {0: 0, 1: 4 * MS, 2: 6 * MS}


@pytest.mark.parametrize("gib_per_sec", [0.01, 1.0, 1000.0])
def test_a_planned_order_waits_for_the_user_that_would_ask_first(gib_per_sec: float) -> None:
    quick = [ask(0, turn, think_ms=3) for turn in range(3)]
    slow = [ask(1, turn, at_ms=5, think_ms=2) for turn in range(2)]
    load = Script(quick, slow)
    _engine, oracle, _ = serve(load, servers=1, gib_per_sec=gib_per_sec, planned=True, closed=True)
    # They ask at 0, 3 and 6 ms, and at 5 and 7 ms, where nothing takes time.
    rows = {(row.request.user, row.request.conversation): row for row in oracle.requests}
    order = sorted(rows, key=lambda asked: rows[asked].started_ns)
    assert order == [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1)]
    for user, number in [(0, 1), (0, 2), (1, 1)]:
        row = rows[user, number]
        assert row.intended_ns == rows[user, number - 1].finished_ns + row.request.think_ns


def test_users_without_a_pause_take_turns_by_plan() -> None:
    load = Script(*([ask(user, number) for number in range(3)] for user in range(3)))
    _engine, oracle, _ = serve(load, servers=1, planned=True, closed=True)
    assert [user for user, _turn in served(oracle)] == [0, 1, 2] * 3


def test_l1_a_turn_is_not_served_before_the_turn_before_it_but_the_next_conversation_is() -> None:
    user = [
        ask(0, 0, 0, at_ms=0, context=100),
        ask(0, 0, 1, at_ms=1, history=[100]),
        ask(0, 1, 0, at_ms=2),
    ]
    _engine, oracle, _ = serve(Script(user), servers=3)
    rows = {(row.request.conversation, row.request.turn): row for row in oracle.requests}
    assert rows[0, 1].started_ns >= rows[0, 0].finished_ns
    assert rows[1, 0].started_ns == 2 * MS


def test_s1_queue_wait_counts_from_the_intended_time_the_predecessor_included() -> None:
    user = [ask(0, 0, 0, at_ms=0, context=100), ask(0, 0, 1, at_ms=1, history=[100])]
    _engine, oracle, _ = serve(Script(user), servers=2)
    first, second = sorted(oracle.requests, key=lambda row: row.request.turn)
    assert second.queue_ns == first.finished_ns - 1 * MS


def test_s1_end_to_end_is_the_sum_of_its_parts() -> None:
    _engine, oracle, _ = serve(Script([ask(0)], [ask(1)]), servers=2, ms_per_token=30)
    for row in oracle.requests:
        assert row.end_to_end_ns == row.queue_ns + row.storage_ns + row.generation_ns + row.other_ns
        assert row.generation_ns == 300 * MS
        assert row.other_ns == 0


def test_the_mlperf_model_reads_the_entry_once_and_once_per_batch_of_32_tokens() -> None:
    request = ask(0, context=10, generate=65)
    _engine, oracle, _ = serve(Script([request]), servers=1)
    reads = [op for op in oracle.ops if op.verb == "read"]
    assert len(reads) == 1 + 3
    assert {op.nbytes for op in reads} == {10 * BYTES_PER_TOKEN}


def test_from_10000_context_tokens_a_request_only_prefills_and_still_generates_its_answer() -> None:
    _engine, oracle, _ = serve(Script([ask(0, context=10_000)]), servers=1, ms_per_token=30)
    assert [op.verb for op in oracle.ops] == ["write"]
    assert oracle.requests[0].generated_tokens == 10
    assert oracle.requests[0].generation_ns == 10 * 30 * MS


def test_l3_unfinished_requests_are_counted_with_their_wait() -> None:
    """One in service has waited until its service began, the others wait still."""
    requests = [[ask(user, at_ms=10 * user, context=1024)] for user in range(3)]
    _engine, oracle, waits = serve(Script(*requests), servers=1, duration=0.5)
    assert oracle.requests == []
    assert sorted(wait_ns for _qos, wait_ns, _added_ns in waits) == [0, 480 * MS, 490 * MS]


NULL = float("inf")
"""The speed of a device that takes no time."""


def test_s11_who_waits_for_the_answer_before_is_not_late_by_queue_or_storage() -> None:
    """On a null device nothing but the first turn's 10 s of generation keeps the second one waiting."""
    turns = [ask(0), ask(0, turn=1, at_ms=1000, history=(10,))]
    _engine, _oracle, waits = serve(Script(turns), servers=2, duration=5, gib_per_sec=NULL, ms_per_token=1000)
    assert waits == [(QoS.BATCH, 4000 * MS, 0), (QoS.BATCH, 0, 0)]


def test_s11_only_the_answer_right_before_is_taken_off_an_unfinished_wait() -> None:
    """As of those that completed: a third turn waits for the second one, which generates nothing yet."""
    turns = [ask(0, turn=turn, at_ms=1000 * turn, history=(10,) * turn) for turn in range(3)]
    _engine, _oracle, waits = serve(Script(turns), servers=2, duration=5, gib_per_sec=NULL, ms_per_token=1000)
    assert sorted(waits) == [(QoS.BATCH, 0, 0), (QoS.BATCH, 3000 * MS, 3000 * MS), (QoS.BATCH, 4000 * MS, 0)]


def test_s11_a_wait_for_a_server_stays_when_the_answer_before_is_taken_off_it() -> None:
    """The second turn waits from 1 s on, and the first one answers until 2 s."""
    turns = [ask(0, generate=2), ask(0, turn=1, at_ms=1000, history=(10,))]
    load: dict[str, Any] = {"servers": 2, "duration": 5, "gib_per_sec": NULL, "ms_per_token": 1000}
    other, urgent = [ask(1, at_ms=1500)], [ask(2, at_ms=1700, qos=QoS.INTERACTIVE)]
    _engine, _oracle, served_at_2s = serve(Script(turns, other), **load)
    assert sorted(served_at_2s) == [(QoS.BATCH, 0, 0), (QoS.BATCH, 1000 * MS, 0)]
    _engine, _oracle, waits = serve(Script(turns, other, urgent), **load)
    assert (QoS.BATCH, 4000 * MS, 3000 * MS) in waits


@pytest.mark.parametrize("planned", [False, True])
def test_s11_the_answer_before_is_taken_off_a_wait_that_began_while_all_servers_were_busy(
    planned: bool,
) -> None:
    """What comes then is taken in when a server looks for work: after the answer's end."""
    turns = [ask(0), ask(0, turn=1, at_ms=1000, history=(10,))]
    _engine, oracle, _waits = serve(
        Script(turns), servers=1, gib_per_sec=NULL, ms_per_token=1000, planned=planned
    )
    assert [(row.queue_ns, row.added_ns) for row in oracle.requests] == [(0, 0), (9000 * MS, 0)]


def test_s11_on_a_null_device_with_servers_to_spare_nothing_unfinished_is_late() -> None:
    config = Config(num_users=130, request_rate=12, duration=25, warmup=0, device_profile="null")
    result = run_trial(Plan(config, simulated=True, storage_bytes=1 << 50), Progress(quiet=True)).document()
    classes = result["summary"]["qos_metrics"].values()
    assert sum(found["unfinished_requests"] for found in classes) > 50
    assert [found["sla"]["violations"] for found in classes] == [0, 0, 0]
    # The waits themselves are shown whole (L3).
    assert max(found["queue_wait_ms"]["max"] for found in classes) > 5000


def test_s1_time_inside_cache_calls_is_told_of_requests_that_are_not_done_too() -> None:
    """Three share a device that could serve one of them; each has been in a cache call from the start."""
    requests = [[ask(user, context=1024)] for user in range(3)]
    _engine, oracle, _ = serve(Script(*requests), servers=3, duration=0.5)
    assert oracle.requests == []
    assert oracle.cache_call_ns == 3 * 500 * MS


def test_s1_time_inside_cache_calls_adds_up_to_the_storage_io_of_the_requests() -> None:
    requests = [[ask(user, context=1024)] for user in range(3)]
    _engine, oracle, _ = serve(Script(*requests), servers=3)
    assert len(oracle.requests) == 3
    assert oracle.cache_call_ns == sum(row.storage_ns for row in oracle.requests)


def test_l3_arrivals_beyond_the_longest_backlog_are_shed_and_counted() -> None:
    requests = [[ask(user, at_ms=1, context=1024)] for user in range(10)]
    engine, _oracle, _ = serve(Script(*requests), servers=1, duration=0.1, max_queue=4)
    assert engine.arrived == 10
    assert engine.shed > 0
    assert engine.queued <= 4


def test_l4_max_requests_takes_the_first_by_intended_time() -> None:
    sessions = [
        [ask(user, at_ms=100 * user + turn, turn=turn, history=[10] * turn) for turn in range(3)]
        for user in range(3)
    ]
    _engine, oracle, _ = serve(Script(*sessions), servers=3, max_requests=4)
    assert sorted(served(oracle)) == [(0, 0), (0, 1), (0, 2), (1, 0)]


def test_l4_closed_users_share_the_requests() -> None:
    sessions = [[ask(user, turn, 0) for turn in range(9)] for user in range(3)]
    _engine, oracle, _ = serve(Script(*sessions), servers=3, max_requests=8, closed=True)
    per_user = [sum(row.request.user == user for row in oracle.requests) for user in range(3)]
    assert sorted(per_user) == [2, 3, 3]


def simulate(**settings_: Any) -> Any:
    config = Config(model="tiny-1b", cpu_mem_gb=0, generation_mode="none", **settings_)
    return run_trial(Plan(config, simulated=True, storage_bytes=1 << 50), Progress(quiet=True)).document()


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10_000), users=st.integers(1, 12))
def test_s9_the_digest_tells_the_work_and_not_the_speed(seed: int, users: int) -> None:
    runs = [
        simulate(seed=seed, num_users=users, max_requests=30, device_profile=device, servers=servers)
        for device, servers in (("null", None), ("sata-ssd", None), ("nvme-gen5", 1))
    ]
    assert len({run["digest"] for run in runs}) == 1
    assert {run["requests_completed"] for run in runs} == {30}
    assert simulate(seed=seed + 1, num_users=users, max_requests=30)["digest"] != runs[0]["digest"]


@pytest.mark.parametrize("arrival", ["open", "closed"])
def test_l2_a_slow_device_makes_no_fixed_work_a_light_load(arrival: str) -> None:
    """What is offered is the rate of the intended times; closed users are as slow as their answers."""
    fixed: dict[str, Any] = {"num_users": 12, "max_requests": 60, "arrival": arrival}
    quick, slow = (simulate(device_profile=device, **fixed) for device in ("null", "sata-ssd"))
    rates = [run["honesty"]["offered_load"]["arrivals_per_sec"] for run in (quick, slow)]
    assert (rates[0] == rates[1]) is (arrival == "open")
    assert rates[1] <= rates[0]


def test_s3_nothing_that_completes_after_the_window_is_in_it() -> None:
    result = simulate(num_users=20, duration=20, device_profile="sata-ssd")
    assert result["window"]["measured_seconds"] == pytest.approx(18)
    assert result["honesty"]["requests"]["unfinished"] > 0
    read = result["summary"]["cache_stats"]["tier_storage_read_bandwidth_gbps"]
    written = result["summary"]["cache_stats"]["tier_storage_write_bandwidth_gbps"]
    # S4: modelled bytes are interpolated at the edges of the window, hence the hundredth.
    assert read / 0.5 + written / 0.45 <= 1.01
