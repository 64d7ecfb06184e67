"""What every backend promises, as tests: subclass BackendSuite, name your plug-in, and let pytest run it.

    from kvspill.testing.backends import BackendSuite
    from mystore import PLUGIN

    class TestMyStore(BackendSuite):
        plugin = PLUGIN
        addresses = ("my://localhost/bucket",)

The fixture `settings` has the settings of the run; overridden with parameters it runs the suite for each.
"""

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from kvspill.config import Config
from kvspill.plugins import VIRTUAL, Kind
from kvspill.records import MIB, NS_PER_SEC, Tier
from kvspill.storage.base import Backend, BackendContext, Note, ObjectRef, WriteItem
from kvspill.testing.declarations import DeclarationSuite, check_complete
from kvspill.testing.objects import SETTINGS, SIZES, errors, items, ok, shared_plane, some_refs, written
from kvspill.testing.turns import check_turns
from kvspill.world import World, run_real, run_virtual

Scenario = Callable[[Backend], Coroutine[Any, Any, None]]
Run = Callable[[Scenario], None]


class BackendSuite(DeclarationSuite):
    """The contract. Names that begin with Test are collected, so the subclass must have such a one."""

    kind = Kind.BACKEND

    options: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Options of the plug-in to test it with."""
    tier: ClassVar[Tier] = Tier.STORAGE
    capacity_bytes: ClassVar[int] = 128 * MIB
    """What the backend may hold; the tests need 64 MiB and write more than that in turn."""
    addresses: ClassVar[tuple[str, ...]] = ()

    @pytest.fixture
    def settings(self) -> Mapping[str, Any]:
        """Settings of the run beside the defaults."""
        return {}

    @pytest.fixture
    def verify(self) -> str | None:
        """How reads are verified where a test says it, not the settings."""
        return None

    def corrupt(self, backend: Backend, ref: ObjectRef, offset: int, tmp_path: Path) -> bool:  # noqa: ARG002
        """Change the byte of a stored object at an offset, behind the backend's back, and return True."""
        return False

    def leftovers(self, tmp_path: Path) -> Sequence[object]:
        """What is left after closing, where the backend keeps objects; tmp_path is its directory."""
        return list(tmp_path.iterdir())

    @pytest.fixture
    def context(
        self, settings: Mapping[str, Any], verify: str | None, tmp_path: Path
    ) -> Callable[[World], BackendContext]:
        asked = {} if verify is None else {"verify": verify}
        config = Config(**{**SETTINGS, **settings, **asked})

        def make(world: World) -> BackendContext:
            return BackendContext(
                tier=self.tier,
                clock_ns=world.now_ns,
                limit_bytes=self.capacity_bytes,
                usable_bytes=self.capacity_bytes,
                unit_bytes=3 * MIB // 2,
                settings=MappingProxyType(dict(config)),
                roots=(tmp_path,),
                addresses=self.addresses,
                plane=None if world.virtual else shared_plane(),
                options=self.plugin.filled(self.options),
            )

        return make

    @property
    def virtual(self) -> bool:
        return VIRTUAL in self.plugin.can

    @pytest.fixture
    def run(self, context: Callable[[World], BackendContext]) -> Run:
        """Runs a scenario on one prepared backend and closes it."""
        why_not = self.plugin.ready()
        if why_not is not None:
            pytest.skip(why_not)

        def go(scenario: Scenario) -> None:
            async def main(world: World) -> None:
                backend = self.plugin.make(context(world))
                check_complete(backend, Backend)
                try:
                    await backend.prepare(lambda _what, _done, _total: None)
                    await scenario(backend)
                finally:
                    await backend.close()

            (run_virtual if self.virtual else run_real)(main, seed=1)

        return go

    def test_its_schemes_can_stand_in_an_address(self) -> None:
        assert all(re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme) for scheme in self.plugin.schemes)

    def test_what_was_written_can_be_read_as_often_as_wanted(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            await written(backend, some_refs())
            for _ in range(3):
                await ok(backend.read(some_refs()), len(SIZES))

        run(scenario)

    def test_a_read_of_what_was_never_written_is_an_error_and_never_a_hit(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            assert errors(await backend.read(some_refs())) == ["ENOENT"] * len(SIZES)

        run(scenario)

    def test_a_deleted_object_is_gone(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            await written(backend, some_refs())
            await ok(backend.delete(some_refs()), len(SIZES))
            assert errors(await backend.read(some_refs())) == ["ENOENT"] * len(SIZES)
            assert errors(await backend.delete(some_refs())) == ["ENOENT"] * len(SIZES)

        run(scenario)

    def test_of_two_deletes_at_once_one_finds_the_object(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            ref = ObjectRef("k", 1, 70_000)
            await written(backend, [ref])
            answers = await asyncio.gather(backend.delete([ref]), backend.delete([ref]))
            found = {answer.error for completions in answers for answer in completions}
            assert None in found
            assert found <= {None, "ENOENT"}
            await written(backend, [ref])
            await ok(backend.read([ref]), 1)

        run(scenario)

    def test_generations_of_a_key_are_objects_of_their_own(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            await written(backend, some_refs(1) + some_refs(2))
            await ok(backend.delete(some_refs(1)), len(SIZES))
            await ok(backend.read(some_refs(2)), len(SIZES))
            assert errors(await backend.read(some_refs(1))) == ["ENOENT"] * len(SIZES)

        run(scenario)

    def test_an_object_can_be_written_again(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            for _ in range(2):
                await written(backend, some_refs())
            await ok(backend.read(some_refs()), len(SIZES))
            await ok(backend.delete(some_refs()), len(SIZES))
            assert errors(await backend.read(some_refs())) == ["ENOENT"] * len(SIZES)

        run(scenario)

    def test_an_empty_batch_has_an_empty_answer(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            assert await backend.read([]) == await backend.write([]) == await backend.delete([]) == []

        run(scenario)

    def test_one_bad_item_of_a_batch_does_not_touch_the_others(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            here, gone, there = (ObjectRef(key, 1, 5000) for key in "abc")
            await written(backend, [here, there])
            assert errors(await backend.read([here, gone, there])) == [None, "ENOENT", None]
            assert errors(await backend.delete([gone, here])) == ["ENOENT", None]

        run(scenario)

    def test_answers_come_in_the_order_of_the_batch(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            await written(backend, some_refs())
            for refs in (some_refs(), some_refs()[::-1]):
                for ref, answer in zip(refs, await ok(backend.read(refs), len(SIZES)), strict=True):
                    moved = sum(nbytes for _, _, nbytes in answer.pieces)
                    assert not answer.pieces or ref.nbytes <= moved <= backend.stored_bytes(ref.nbytes)

        run(scenario)

    def test_times_are_in_order_and_queue_device_and_host_add_up(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            answers = await written(backend, some_refs())
            answers += await backend.read(some_refs()) + await backend.delete(some_refs())
            for answer in answers:
                assert answer.submitted_ns <= answer.started_ns <= answer.finished_ns
                assert 0 <= answer.device_ns <= answer.finished_ns - answer.started_ns
                assert answer.queue_ns + answer.device_ns + answer.host_ns == answer.total_ns

        run(scenario)

    def test_moving_bytes_takes_time_inside_the_device(self, run: Run) -> None:
        """S2: the time of the device is measured, around the calls that move the bytes."""

        async def scenario(backend: Backend) -> None:
            if backend.capabilities.modelled:
                pytest.skip("no byte moves")
            ref = ObjectRef("k", 1, 3 * MIB)
            for verb, (answer,) in (
                ("write", await written(backend, [ref])),
                ("read", await backend.read([ref])),
            ):
                assert answer.device_ns > 0, f"device_ns of a {verb} is 0: take the clock around the call"

        run(scenario)

    def test_pieces_lie_within_the_operation_and_move_at_least_the_object(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            answers = await written(backend, some_refs()) + await backend.read(some_refs())
            for ref, answer in zip(some_refs() * 2, answers, strict=True):
                if not answer.pieces:
                    assert backend.capabilities.modelled
                    continue
                moved = sum(nbytes for _, _, nbytes in answer.pieces)
                assert ref.nbytes <= moved <= backend.stored_bytes(ref.nbytes)
                for start_ns, end_ns, _ in answer.pieces:
                    assert answer.started_ns <= start_ns <= end_ns <= answer.finished_ns

        run(scenario)

    def test_stored_bytes_never_fall_short_and_grow_with_the_object(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            stored = [backend.stored_bytes(nbytes) for nbytes in SIZES]
            assert stored == sorted(stored)
            assert all(padded >= nbytes for padded, nbytes in zip(stored, SIZES, strict=True))
            assert all(backend.stored_bytes(padded) == padded for padded in stored)

        run(scenario)

    def test_room_comes_back_when_an_object_is_removed_or_written_over(self, run: Run) -> None:
        """C7: within the ledger there is always room, however much was written before."""

        async def scenario(backend: Backend) -> None:
            nbytes = 4 * MIB
            held = max(1, self.capacity_bytes // 2 // backend.stored_bytes(nbytes))
            for generation in range(1, 2 + 2 * self.capacity_bytes // (held * nbytes)):
                refs = [ObjectRef(f"k{index}", generation, nbytes) for index in range(held)]
                await written(backend, refs)
                await written(backend, refs[:1])
                await ok(backend.delete(refs), held)

        run(scenario)

    def test_many_operations_at_once_all_complete(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            refs = [ObjectRef(f"k{index}", 1, 70_000) for index in range(30)]
            await asyncio.gather(*(written(backend, [ref]) for ref in refs))
            await asyncio.gather(*(ok(backend.read([ref]), 1) for ref in refs for _ in range(3)))
            await asyncio.gather(
                *(ok(backend.delete([ref]), 1) for ref in refs[::2]),
                *(ok(backend.read([ref]), 1) for ref in refs[1::2]),
                written(backend, [ObjectRef("new", 1, 70_000)]),
            )

        run(scenario)

    def test_what_it_lends_is_the_object_in_whole_blocks(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            await written(backend, some_refs())
            for ref in some_refs():
                source = backend.lend(ref)
                padded = -(-ref.nbytes // 4096) * 4096
                if source is not None:
                    assert sum(len(part) for part in source.buffers(0, padded)) == padded
            assert backend.lend(ObjectRef("never written", 1, 4096)) is None

        run(scenario)

    def test_an_object_that_another_tier_lends_is_written_and_passes_its_check(self, run: Run) -> None:
        if self.virtual:
            pytest.skip("no byte moves")
        from kvspill.storage.dram import DramBackend

        async def scenario(backend: Backend) -> None:
            memory = DramBackend(64 * MIB, plane=shared_plane())
            try:
                await written(memory, some_refs())
                lent = [WriteItem(ref, memory.lend(ref)) for ref in some_refs()]
                await ok(backend.write(lent), len(SIZES))
            finally:
                await memory.close()
            await ok(backend.read(some_refs()), len(SIZES))

        run(scenario)

    @pytest.mark.parametrize(("verify", "offset"), [("stamp", MIB), ("full", MIB + 2047)])
    def test_damage_is_found_where_it_verifies(
        self, run: Run, tmp_path: Path, verify: str, offset: int
    ) -> None:
        """Of a stamp by `--verify stamp`, of any byte by `--verify full`."""

        async def scenario(backend: Backend) -> None:
            if not backend.capabilities.verifies:
                pytest.skip("it does not verify")
            refs = [ObjectRef("damaged", 1, 3 * MIB), ObjectRef("whole", 1, 3 * MIB)]
            await written(backend, refs)
            await ok(backend.read(refs), 2)
            damaged = self.corrupt(backend, refs[0], offset, tmp_path)
            assert damaged, "it says that it verifies: override corrupt() so that damage can be looked for"
            bad, good = errors(await backend.read(refs))
            assert bad is not None, (
                f"--verify {verify} does not find that byte {offset:,} of an object changed"
            )
            assert good is None

        run(scenario)

    def test_cancel_answers_everything_and_refuses_what_comes_later(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            refs = [ObjectRef(f"large{index}", 1, 8 * MIB) for index in range(4)]
            under_way = asyncio.ensure_future(backend.write(items(refs)))
            await asyncio.sleep(0)
            backend.cancel()
            for ref, answer in zip(refs, await under_way, strict=True):
                assert answer.error in (None, "cancelled")
                moved = sum(nbytes for _, _, nbytes in answer.pieces)
                assert moved <= backend.stored_bytes(ref.nbytes)
            assert errors(await backend.read(refs[:1])) == ["cancelled"]
            assert errors(await backend.write(items(refs[:1]))) == ["cancelled"]

        run(scenario)

    def test_the_event_loop_turns_while_bytes_move(self, run: Run) -> None:
        if self.virtual:
            pytest.skip("no time passes")

        async def scenario(backend: Backend) -> None:
            await check_turns("write", lambda: backend.write(items(some_refs())))
            await check_turns("read", lambda: backend.read(some_refs()))

        run(scenario)

    def test_a_caller_that_goes_away_harms_no_other(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            gone, stays = ObjectRef("gone", 1, 8 * MIB), ObjectRef("stays", 1, 5000)
            under_way = asyncio.ensure_future(backend.write(items([gone])))
            await asyncio.sleep(0)
            under_way.cancel()
            await asyncio.gather(under_way, return_exceptions=True)
            await written(backend, [stays])
            await ok(backend.read([stays]), 1)

        run(scenario)

    def test_nothing_is_stuck_where_nothing_is_asked(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            await written(backend, some_refs())
            assert backend.stuck(time.monotonic_ns(), NS_PER_SEC) == []

        run(scenario)

    def test_closing_twice_is_harmless_and_leaves_nothing_behind(self, run: Run, tmp_path: Path) -> None:
        found: list[list[Note]] = []

        async def scenario(backend: Backend) -> None:
            await written(backend, some_refs())
            found.append(backend.notes())
            await backend.close()
            await backend.close()
            backend.close_now()
            found.append(backend.notes())

        run(scenario)
        assert self.leftovers(tmp_path) == []
        for notes in found:
            assert all(note.code and note.message and note.remedy for note in notes)

    def test_it_says_what_it_is_and_what_it_did(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            await written(backend, some_refs())
            found = backend.capabilities
            assert found.name
            assert found.description
            assert not (found.modelled and found.verifies)
            assert all(isinstance(value, int | float | str) for value in backend.facts().values())

        run(scenario)
