"""A real Redis server in trouble: what it drops is a miss, what fails is counted, and runs end in time."""

import asyncio
import json
import re
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.records import DROPPED, MIB, Tier
from kvspill.storage.backends.redis import PLUGIN
from kvspill.storage.base import Backend, BackendContext, ObjectRef
from kvspill.storage.redis.backend import RedisBackend
from kvspill.testing.objects import errors, items, shared_plane
from kvspill.world import World, run_real
from real.redis_server import RedisServer, free_port, redis_server
from real.rig import start, wait_until

pytestmark = pytest.mark.real
REFS = [ObjectRef(f"k{index}", 1, 3 * MIB) for index in range(8)]
FIXED = ("--servers", "1", "--max-requests", "24", "--num-users", "3", "--storage-capacity-gb", "0.01")
Scenario = Callable[[RedisBackend], Coroutine[Any, Any, None]]


def on(address: str, scenario: Scenario, **options: Any) -> None:
    """Run a scenario on one prepared backend and close it."""

    async def go(world: World) -> None:
        context = BackendContext(
            tier=Tier.STORAGE,
            clock_ns=world.now_ns,
            limit_bytes=1 << 30,
            usable_bytes=1 << 30,
            unit_bytes=MIB,
            settings={"io_threads": 2, "write_threads": 0, "verify": "stamp"},
            addresses=(address,),
            plane=shared_plane(),
            options=PLUGIN.filled(options),
        )
        backend: Backend = PLUGIN.make(context)
        assert isinstance(backend, RedisBackend)
        try:
            await backend.prepare(lambda _what, _done, _total: None)
            await scenario(backend)
        finally:
            await backend.close()

    run_real(go, seed=1)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


def keys(server: RedisServer) -> list[bytes]:
    with server.client() as client:
        found: list[bytes] = client.keys()
        return found


def test_with_one_server_it_finds_and_moves_what_files_do(tmp_path: Path) -> None:
    """S9, C7: the same load gives the same digest, hits, evictions and bytes on every backend."""
    (tmp_path / "files").mkdir()
    seen = []
    with redis_server("--requirepass", "geheim") as locked:
        for place in (str(tmp_path / "files"), locked.address.replace("unix://", "unix://:geheim@")):
            finished = start(tmp_path, place, *FIXED).finish()
            assert finished.code == 0, finished.err
            assert "geheim" not in json.dumps(finished.result) + finished.out + finished.err
            result = finished.result
            asked = result["honesty"]["bytes"]
            seen.append(
                {
                    "digest": result["digest"],
                    "hit rate": result["metrics"]["cache_hit_rate"],
                    "read, written": (asked["asked_read_bytes"], asked["asked_written_bytes"]),
                    "evictions": [w["message"] for w in result["warnings"] if w["code"] == "capacity_bound"],
                }
            )
        with locked.client(password="geheim") as client:
            assert client.keys() == []
    assert seen[0] == seen[1]
    assert seen[0]["evictions"]


def test_what_the_server_drops_is_a_miss_and_no_fault(tmp_path: Path) -> None:
    with redis_server("--maxmemory", "12mb", "--maxmemory-policy", "allkeys-lru") as small:
        finished = start(
            tmp_path, small.address, "--max-requests", "80", "--storage-capacity-gb", "1"
        ).finish()
        assert finished.code == 0, finished.err
        result = finished.result
        cautions = {warning["code"]: warning for warning in result["warnings"]}
        assert "store_memory" in cautions
        assert cautions["store_dropped"]["severity"] == "serious"
        assert finished.errors == {}
        (counters,) = (tier["counters"] for tier in result["tiers"] if tier["tier"] == "storage")
        lost = counters["store_dropped_entries"]
        lookups = sum(result["metrics"][name]["value"] for name in ("cache_hits", "cache_misses"))
        assert lost > 0
        said = cautions["store_dropped"]["message"]
        assert f"dropped {lost:,} entries" in said
        assert f"{lost / lookups:.1%} of all lookups" in said
        assert result["metrics"]["cache_hit_rate"]["value"] < 1
        assert keys(small) == []


def test_a_server_that_is_full_and_drops_nothing_answers_enospc() -> None:
    async def scenario(backend: RedisBackend) -> None:
        found = errors(await backend.write(items(REFS)))
        assert set(found) == {None, "ENOSPC"}
        written = [ref for ref, error in zip(REFS, found, strict=True) if error is None]
        assert errors(await backend.read(written)) == [None] * len(written)
        assert "store_memory" in [note.code for note in backend.notes()]

    with redis_server("--maxmemory", "12mb") as small:
        on(small.address, scenario)
        assert keys(small) == []


def test_a_server_that_is_full_before_the_load_is_said_to_be_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = ["run", "--model", "tiny-1b", "--duration", "1", "--cpu-mem-gb", "0", "--cache-dir"]
    with redis_server() as small, small.client() as client:
        client.config_set("maxmemory", "24mb")
        assert main([*run, small.address]) == 2
        said = capsys.readouterr().err
        assert "of which a run takes 80 % at most, but the largest entry takes 192 MiB" in said
        assert "raise the limit of the server (such as maxmemory)" in said
        assert "--storage-capacity-gb" not in said
        client.config_set("maxmemory", "100kb")
        assert main([*run, small.address, "--storage-capacity-gb", "1"]) == 2
        said = capsys.readouterr().err
        assert f"--cache-dir {small.address}: the memory of the server is full (ENOSPC: " in said
        assert "config set maxmemory" in said
        assert "correct the address" not in said


def test_two_writes_of_one_entry_at_a_time_both_succeed(server: RedisServer) -> None:
    async def scenario(backend: RedisBackend) -> None:
        (ref,) = REFS[:1]
        assert errors(await backend.write(items([ref] * 8))) == [None] * 8
        assert errors(await backend.read([ref])) == [None]

    on(server.address, scenario)
    assert keys(server) == []


def test_a_server_that_was_started_anew_has_dropped_all_and_is_used_again() -> None:
    async def scenario(backend: RedisBackend) -> None:
        assert errors(await backend.write(items(REFS))) == [None] * len(REFS)
        again.kill()
        assert set(errors(await backend.read(REFS[:2]))) <= {"ECONNREFUSED", "ECONNRESET", "ENOENT"}
        again.start()
        assert errors(await backend.read(REFS)) == [DROPPED] * len(REFS)
        assert errors(await backend.write(items(REFS[:2]))) == [None] * 2
        assert errors(await backend.read(REFS[:2])) == [None] * 2
        # Removing what the server has dropped already is no error.
        assert errors(await backend.delete(REFS)) == [None] * len(REFS)
        assert backend.facts()["store_dropped_entries"] == len(REFS)

    with redis_server() as again:
        on(again.address, scenario)
        assert keys(again) == []


def test_a_connection_that_is_lost_between_operations_is_made_anew_and_counted(server: RedisServer) -> None:
    async def scenario(backend: RedisBackend) -> None:
        assert errors(await backend.write(items(REFS))) == [None] * len(REFS)
        with server.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)
        assert errors(await backend.read(REFS)) == [None] * len(REFS)
        assert 0 < int(backend.facts()["retries"]) <= 2

    on(server.address, scenario)


def test_a_server_that_stands_still_fails_operations_in_time(server: RedisServer) -> None:
    async def scenario(backend: RedisBackend) -> None:
        assert errors(await backend.write(items(REFS[:2]))) == [None, None]
        server.stop()
        try:
            began = time.monotonic()
            assert errors(await backend.read(REFS[:2])) == ["ETIMEDOUT", "ETIMEDOUT"]
            assert time.monotonic() - began < 2.0
        finally:
            server.go_on()

    on(server.address, scenario, timeout=0.3)


def test_closing_does_not_wait_for_a_server_that_stands_still() -> None:
    async def scenario(backend: RedisBackend) -> None:
        assert errors(await backend.write(items(REFS[:2]))) == [None, None]
        still.stop()
        under_way = asyncio.ensure_future(backend.read(REFS[:2]))
        await asyncio.sleep(0.05)
        assert backend.stuck(time.monotonic_ns(), 0)
        backend.cancel()
        began = time.monotonic()
        await backend.close()
        assert time.monotonic() - began < 5.0
        assert set(errors(await under_way)) <= {"cancelled", "ECONNRESET"}
        (note,) = backend.notes()
        assert note.code == "left_behind"
        assert f"kvspill clean {still.address}" in note.remedy

    with redis_server() as still:
        on(still.address, scenario)


def test_a_run_whose_server_is_killed_ends_in_time_with_errors_by_kind(tmp_path: Path) -> None:
    with redis_server() as doomed:
        run = start(tmp_path, doomed.address, "--duration", "2", "--max-errors", "100000")
        wait_until(lambda: len(keys(doomed)) > 10)
        doomed.kill()
        finished = run.finish(20.0)
        assert finished.code == 1
        assert finished.result["faulty"]
        assert any("ECONNREFUSED" in name for name in finished.errors)
        assert "left_behind" in [warning["code"] for warning in finished.result["warnings"]]


def test_what_a_killed_run_left_is_removed_by_clean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with redis_server("--requirepass", "geheim") as kept:
        address = kept.address.replace("unix://", "unix://:geheim@")

        def there() -> list[bytes]:
            with kept.client(password="geheim") as client:
                found: list[bytes] = client.keys()
                return found

        with kept.client(password="geheim") as client:
            client.set("kvspill:not-a-run:1", "mine")
        run = start(tmp_path, address, "--duration", "30")
        wait_until(lambda: len(there()) > 10)
        assert main(["clean", address]) == 0
        assert "left alone kvspill-" in capsys.readouterr().out
        run.send(signal.SIGKILL)
        run.finish()
        assert len(there()) > 3
        assert main(["clean", address]) == 0
        said = capsys.readouterr().out
        assert "1 left-over run removed" in said
        assert "geheim" not in said
        assert there() == [b"kvspill:not-a-run:1"]


@pytest.mark.parametrize("secret", ["", "falsch"])
def test_a_wrong_password_is_refused_in_one_line_that_does_not_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], secret: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with redis_server("--requirepass", "geheim") as locked:
        address = locked.address.replace("unix://", f"unix://:{secret}@" if secret else "unix://")
        assert main(["run", "--cache-dir", address, "--duration", "1"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "the server refuses the password or the user" in said
    assert "falsch" not in said


def test_a_server_that_is_not_there_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    address = f"redis://127.0.0.1:{free_port()}"
    assert main(["run", "--cache-dir", address, "--duration", "1"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"--cache-dir {address}: " in said
    assert "(ECONNREFUSED); start the server" in said
    for address in ("redis://127.0.0.1:none", "redis://a..b:6379"):
        assert main(["run", "--cache-dir", address, "--duration", "1"]) == 2
        assert f"{address}: is no address" in capsys.readouterr().err


def test_a_server_that_stands_still_before_the_load_is_one_line_in_time(
    server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.stop()
    try:
        began = time.monotonic()
        words = ["run", "--cache-dir", server.address, "--redis-timeout", "0.3", "--duration", "1"]
        assert main(words) == 1
        assert time.monotonic() - began < 10
    finally:
        server.go_on()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "(ETIMEDOUT); start the server" in said


def test_what_the_server_itself_refuses_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with redis_server(port=free_port()) as first:
        assert main(["run", "--cache-dir", f"{first.address}/99", "--duration", "1"]) == 2
        assert "the server refuses it (DB index is out of range)" in capsys.readouterr().err
        with redis_server("--replicaof", "127.0.0.1", str(first.port)) as replica:
            assert main(["run", "--cache-dir", replica.address, "--duration", "1"]) == 2
            assert "can't write against a read only replica" in capsys.readouterr().err


def test_a_server_that_is_slow_takes_its_time_and_fails_nothing(server: RedisServer) -> None:
    async def scenario(backend: RedisBackend) -> None:
        with server.client() as client:
            client.client_pause(300)
        (done,) = await backend.write(items(REFS[:1]))
        assert done.error is None
        assert done.device_ns > 200_000_000
        assert backend.facts()["retries"] == 0

    on(server.address, scenario)


def test_a_removal_waits_for_a_server_that_is_away_for_a_moment() -> None:
    async def scenario(backend: RedisBackend) -> None:
        assert errors(await backend.write(items(REFS[:2]))) == [None, None]
        away.kill()
        removal = asyncio.ensure_future(backend.delete(REFS[:2]))
        done, _waiting = await asyncio.wait({removal}, timeout=0.3)
        assert not done
        await asyncio.to_thread(away.start)
        # The server has lost both with its memory: they are gone, and their room is free.
        assert errors(await removal) == [None, None]

    with redis_server() as away:
        on(away.address, scenario)


@pytest.mark.slow
def test_a_run_whose_server_stands_still_ends_in_time_and_says_what_hangs(tmp_path: Path) -> None:
    """S3, S16: five seconds after the end of the load at most, and the calls that hang are a fault."""
    with redis_server() as still:
        run = start(tmp_path, still.address, "--duration", "4")
        wait_until(lambda: len(keys(still)) > 10)
        still.stop()
        began = time.monotonic()
        finished = run.finish(40.0)
        assert time.monotonic() - began < 4 + 5 + 5
        still.go_on()
        assert finished.code == 1
        assert finished.result["faulty"]
        assert "stuck_io" in [warning["code"] for warning in finished.result["warnings"]]
        # Another process removes the values as soon as the server answers.
        wait_until(lambda: keys(still) == [])


def test_the_doctor_asks_the_server_and_leaves_nothing_there(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--requirepass", "geheim", "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
    with redis_server(*flags) as locked:
        address = locked.address.replace("unix://", "unix://:geheim@")
        assert main(["doctor", address]) == 0
        said = capsys.readouterr().out
        assert locked.client(password="geheim").keys("*") == []
        assert main(["doctor", locked.address.replace("unix://", "unix://:falsch@")]) == 1
        refused = capsys.readouterr().out
    assert f"storage at {locked.address}\n" in said
    assert "answer: address and password are right (redis " in said
    assert re.search(r"memory: \S+ [KM]iB used of maxmemory 64 MiB: room for", said)
    assert "warning  eviction by the server: allkeys-lru: beyond maxmemory the server drops entries" in said
    for name in ("small write: 4,096 bytes in ", "small read: 4,096 bytes in ", "clock: as ours"):
        assert name in said
    assert "problem  answer: the server refuses the password or the user" in refused
    assert "geheim" not in said
    assert "falsch" not in refused
    assert main(["doctor", f"redis://127.0.0.1:{free_port()}"]) == 1
    said = capsys.readouterr().out
    assert "(ECONNREFUSED)\n           -> start the server, or correct the address" in said
    assert "storage tier: nothing at this address" in said
