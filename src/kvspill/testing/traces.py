"""What every trace format must keep: order, sizes, the same requests each time, and errors that help."""

from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.plugins import LISTS_BLOCKS, Kind
from kvspill.records import Request
from kvspill.testing.declarations import DeclarationSuite, check_complete
from kvspill.workload.base import Workload
from kvspill.workload.rate import in_arrival_order
from kvspill.workload.traces.format import TraceContext
from kvspill.world import World

REQUESTS_MAX = 2_000
FLAG = "--trace"


class TraceSuite(DeclarationSuite):
    """The suite of a trace format. A format without a sample overrides `recording`."""

    kind = Kind.TRACE
    options: Mapping[str, Any] = MappingProxyType({})
    """Options of the format to test it with."""

    @pytest.fixture
    def recording(self) -> Path:
        """A recording in this format with at least ten requests; its sample where there is one."""
        assert self.plugin.sample is not None, "override the fixture `recording`, or ship a sample"
        return self.plugin.sample

    def replay(self, path: Path, **settings: Any) -> Workload:
        """The recording as a workload, as a run makes it."""
        config = Config(trace=f"{self.plugin.name}:{path}", **{"num_users": 4, **settings})
        options = self.plugin.filled(self.options)
        workload: Workload = self.plugin.make(TraceContext(config, World(config.seed), path, FLAG, options))
        check_complete(workload, Workload)
        return workload

    def requests(self, path: Path, **settings: Any) -> list[Request]:
        """The first requests as open arrivals bring them."""
        return list(islice(in_arrival_order(self.replay(path, **settings)), REQUESTS_MAX))

    def test_a_recording_is_read(self, recording: Path) -> None:
        assert len(self.requests(recording)) >= 10

    def test_requests_come_in_the_order_of_their_times_from_the_start_on(self, recording: Path) -> None:
        times = [request.intended_ns for request in self.requests(recording)]
        assert times == sorted(times)
        assert times[0] >= 0

    def test_sizes_can_be_stored_and_served(self, recording: Path) -> None:
        for request in self.requests(recording):
            assert request.context_tokens >= 1, "a request without context is no request: leave it out"
            assert request.generate_tokens >= 0
            assert request.think_ns >= 0

    def test_blocks_are_listed_where_that_is_declared_and_nowhere_else(self, recording: Path) -> None:
        found = self.requests(recording)
        assert any(request.blocks for request in found) == (LISTS_BLOCKS in self.plugin.can)
        for request in found:
            assert not request.blocks or request.block_tokens > 0
            assert all(isinstance(block, str) for block in request.blocks)

    def test_every_turn_follows_the_turn_before_and_knows_its_history(self, recording: Path) -> None:
        contexts: dict[tuple[int, int], list[int]] = defaultdict(list)
        for request in self.requests(recording):
            before = contexts[request.user, request.conversation]
            assert request.turn == len(before)
            assert list(request.history_tokens) == before
            before.append(request.context_tokens)

    def test_the_same_recording_gives_the_same_requests(self, recording: Path) -> None:
        assert self.requests(recording) == self.requests(recording)

    def test_closed_users_ask_the_same(self, recording: Path) -> None:
        sizes = [
            sorted(
                (request.context_tokens, request.generate_tokens)
                for request in self.requests(recording, **how)
            )
            for how in ({"replay_cycles": 1}, {"replay_cycles": 1, "arrival": "closed", "num_users": 4})
        ]
        assert sizes[0] == sizes[1]

    def test_the_result_says_what_was_read(self, recording: Path) -> None:
        workload = self.replay(recording)
        found = list(islice(in_arrival_order(workload), 10))
        facts = workload.facts()
        assert (facts["kind"], facts["path"]) == (self.plugin.name, str(recording))
        assert facts["requests_read"] >= len(found)

    def test_a_missing_file_is_a_usage_error_that_names_it(self, tmp_path: Path) -> None:
        missing = tmp_path / "no-such-recording"
        with pytest.raises(UsageError, match="no-such-recording"):
            self.requests(missing)

    def test_an_empty_file_is_a_usage_error_that_names_it(self, tmp_path: Path) -> None:
        empty = tmp_path / "empty-recording"
        empty.touch()
        with pytest.raises(UsageError, match="empty-recording"):
            self.requests(empty)

    @pytest.mark.parametrize("garbage", [b"\xff\xfe\x00\x01\n", b"{]\n", b"a,b\n1,2\n", b"\n\n\n"])
    def test_what_is_no_recording_is_a_usage_error_and_nothing_else(
        self, tmp_path: Path, garbage: bytes
    ) -> None:
        file = tmp_path / "garbage"
        file.write_bytes(garbage)
        with pytest.raises(UsageError, match="garbage"):
            self.requests(file)
