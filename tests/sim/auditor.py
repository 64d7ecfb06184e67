"""Watches a run after every operation: ledgers against devices, hits against reads that were served."""

import hashlib
from collections import Counter
from typing import Any

from kvspill.cache.cache import Cache
from kvspill.config import Config
from kvspill.measure.recorder import Recorder
from kvspill.records import (
    Eviction,
    Lookup,
    OpRecord,
    Outcome,
    Purpose,
    RequestRecord,
    Tier,
    Verb,
)
from kvspill.result.facts import RunFacts
from sim.harness import check_ledgers
from sim.hazards import HazardousDevice

GRACE_NS = 5_000_000_000
"""A run ends this long after its duration at the latest (S3)."""


class Auditor(Recorder):
    """The run's own recorder, and a check of everything that must hold at every moment."""

    def __init__(self, *arguments: Any) -> None:
        self.cache: Cache | None = None
        self.config: Config | None = None
        self.checks = 0
        self._trace = hashlib.blake2b(digest_size=16)
        self._reads: Counter[Outcome] = Counter()
        self._lookups: Counter[Outcome] = Counter()
        self._decode_reads: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        super().__init__(*arguments)

    @property
    def digest(self) -> str:
        """Of everything that was seen, in order: equal for equal runs."""
        return self._trace.hexdigest()

    def op(self, record: OpRecord) -> None:
        super().op(record)
        for one in record.each():
            self._one_op(one)
        self._check()

    def _one_op(self, record: OpRecord) -> None:
        self._note(record.tier, record.verb, record.purpose, record.key, record.generation, record.completion)
        if record.completion.error != "cancelled":
            self._check_read(record)
        if record.purpose is Purpose.PREFILL:
            self._decode_reads[record.key] = 0
        if record.purpose is Purpose.DECODE and record.completion.error is None:
            self._decode_reads[record.key] += 1

    def _check_read(self, record: OpRecord) -> None:
        """No read counts that the device did not serve."""
        if record.verb is not Verb.READ:
            return
        if record.completion.error is None:
            device = self._device(record.tier)
            device.unreported_reads[record.key, record.generation] -= 1
            assert device.unreported_reads[record.key, record.generation] >= 0, f"not served: {record}"
        if record.purpose is not Purpose.DEMOTION:
            self._reads[Outcome.HIT if record.completion.error is None else Outcome.ERROR] += 1

    def lookup(self, lookup: Lookup) -> None:
        super().lookup(lookup)
        self._note(lookup)
        self._lookups[lookup.outcome] += lookup.times
        for outcome in (Outcome.HIT, Outcome.ERROR):
            assert self._lookups[outcome] <= self._reads[outcome], f"{outcome} without its read: {lookup}"
        self._check()

    def eviction(self, eviction: Eviction) -> None:
        super().eviction(eviction)
        self._note(eviction)
        self._check()

    def request(self, record: RequestRecord) -> None:
        super().request(record)
        self._note(record.request.key, record.finished_ns, record.failure, record.generated_tokens)
        self._requests["failed" if record.failure else "completed"] += 1
        decode_reads = self._decode_reads.pop(record.request.key, 0)
        if record.failure is None and record.generated_tokens:
            needed = self._decode_reads_needed(record)
            assert decode_reads == needed, f"{decode_reads} of {needed} decode reads served: {record}"
        assert record.other_ns >= 0
        self._check()

    def _decode_reads_needed(self, record: RequestRecord) -> int:
        """How often a request has to read its entry before its tokens may count."""
        assert self.config is not None
        generated_tokens = record.generated_tokens
        if self.config.io_model == "stream":
            return -(-generated_tokens // self.config.stream_tokens_per_read)
        if self.config.io_model == "prefix" or (
            record.request.context_tokens >= self.config.prefill_only_tokens
        ):
            return 0
        return 1 + -(-generated_tokens // 32)

    def _note(self, *what: object) -> None:
        self._trace.update(repr(what).encode())

    def _device(self, tier: Tier) -> HazardousDevice:
        assert self.cache is not None
        for state in self.cache.tiers:
            if state.name is tier:
                assert isinstance(state.backend, HazardousDevice)
                return state.backend
        raise AssertionError(f"there is no {tier} tier")

    def _check(self) -> None:
        """At every moment: ledgers within their limits, and no byte on a device that is not booked (C7)."""
        assert self.cache is not None
        self.checks += 1
        check_ledgers(self.cache)
        for tier in self.cache.tiers:
            device = self._device(tier.name)
            assert device.device_bytes <= tier.used_bytes, f"{tier.name} holds bytes that nobody booked"

    def check_end(self, facts: RunFacts, end_ns: int | None) -> None:
        """When the load is over: every request is accounted for and every fault counted by its kind."""
        accounted = facts.completed + facts.failed + facts.shed + len(facts.unfinished_ages_ns)
        assert facts.arrived == accounted, f"{facts.arrived} arrived, {accounted} accounted for"
        assert self._requests == Counter(
            {name: count for name in ("completed", "failed") if (count := getattr(facts, name))}
        )
        assert end_ns is None or facts.finished_ns <= end_ns + GRACE_NS, "the run ended late"
        self._check()
        self._check_faults()
        if end_ns is None and facts.interrupted is None:
            self._check_quiet()

    def _check_quiet(self) -> None:
        """Where the work ended the run nothing is under way: each booked byte has its object or is lost."""
        assert self.cache is not None
        if self.cache._core.background:
            return
        for tier in self.cache.tiers:
            kept = sum(entry.stored_bytes for entry in tier.residents.values())
            assert tier.used_bytes == kept + tier.lost_bytes, f"{tier.name}: the ledger drifted"
        for outcome in (Outcome.HIT, Outcome.ERROR):
            assert self._lookups[outcome] == self._reads[outcome], f"reads without their {outcome}"

    def _check_faults(self) -> None:
        """Each fault inside the window is in the result under its kind; what ends at the end may be cut.

        An operation that hangs for ever holds back the answers of the batch that it belongs to.
        """
        assert self.cache is not None
        hangs = sum(self._device(tier.name).hangs for tier in self.cache.tiers)
        start_ns, end_ns = self.window_start_ns, self.window_end_ns
        for tier in self.cache.tiers:
            counted: Counter[tuple[str, str]] = Counter()
            for verb in Verb:
                for kind, count in self.lane(tier.name, verb).errors.items():
                    counted[verb.value, kind] += count
            inside = [
                fault for fault in self._device(tier.name).faults if start_ns <= fault.finished_ns <= end_ns
            ]
            injected = Counter((fault.verb, fault.kind) for fault in inside)
            settled = [] if hangs else [fault for fault in inside if fault.finished_ns < end_ns]
            surely = Counter((fault.verb, fault.kind) for fault in settled)
            assert surely <= counted <= injected, f"{tier.name}: injected {injected}, counted {counted}"
