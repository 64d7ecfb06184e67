"""The slo mode: the largest load whose chosen latency stays within its target for the chosen classes."""

from dataclasses import replace
from typing import Any

import numpy as np

from kvspill.measure.priorities import MIN_COMPLETIONS
from kvspill.measure.statistics import Interval, percentile
from kvspill.records import NS_PER_MS, QoS
from kvspill.result.classes import LATENCIES
from kvspill.run.search.controller import Answer, Levels
from kvspill.run.search.options import SearchOptions
from kvspill.run.search.search import BracketSearch, Held, Judgement
from kvspill.run.search.stage import Longs, StageMeasure, rate_interval, share_interval

UP, DOWN = 2.0, 0.5


class SloMode:
    """A percentile is within its target where at most the rest of the requests exceed it.

    Counting what exceeds the target needs no estimate of the percentile itself, and failures count too.
    """

    def __init__(self, options: SearchOptions):
        self._options = options
        self._slo = options.slo
        self._allowed = 1 - options.slo.percentile / 100
        self._search = BracketSearch(options, self.judge, lambda _measure, passed: UP if passed else DOWN)

    def _late(self, measure: StageMeasure, qos: QoS) -> tuple[Longs, Longs]:
        """For each of a class's requests 1 where it missed its target, and its batch.

        Failures count, and so do requests that have waited longer than the target, as its latency counts
        waits; they are taken for the last batch's.
        """
        rows = measure.rows.classes[qos]
        limit_ns = self._slo.limits_ms[qos] * NS_PER_MS
        others = rows.failed + int((rows.waiting_ns > limit_ns).sum())
        late = np.concatenate([rows.chosen_ns > limit_ns, np.ones(others, dtype=bool)]).astype(np.int64)
        batch = np.concatenate([rows.batch, np.full(others, measure.rows.batches - 1)]).astype(np.int64)
        return late, batch

    def _violations(self, measure: StageMeasure, qos: QoS) -> tuple[int, int]:
        """How many of a class's requests missed its target, and how many there were."""
        late, _batch = self._late(measure, qos)
        return int(late.sum()), len(late)

    def _not_judged(self, measure: StageMeasure) -> list[str]:
        """The chosen classes that had too few completions for a verdict."""
        counts = {qos.name.lower(): self._violations(measure, qos)[1] for qos in self._slo.limits_ms}
        return [name for name, total in counts.items() if total < MIN_COMPLETIONS]

    def judge(self, measure: StageMeasure) -> Judgement:
        if measure.overloaded:
            text = f"the backlog grew by {measure.rows.backlog_growth} requests"
            return Judgement(passes=False, clear=True, enough=True, waiting=False, text=text)
        counts = {qos: self._violations(measure, qos) for qos in self._slo.limits_ms}
        shares = {qos: late / total for qos, (late, total) in counts.items() if total}
        intervals = [
            share_interval(*self._late(measure, qos), measure.rows.batches)
            for qos, (_late, total) in counts.items()
            if total
        ]
        passes = all(share <= self._allowed for share in shares.values())
        if passes:
            clear = bool(intervals) and all(high <= self._allowed for _low, high in intervals)
        else:
            clear = any(low > self._allowed for low, _high in intervals)
        # A class without a single completion has no users: no time would help.
        few = [total for _late, total in counts.values() if 0 < total < MIN_COMPLETIONS]
        enough = bool(shares) and not few
        waiting = bool(few) or not shares
        worst = max(shares, key=lambda qos: shares[qos], default=None)
        if worst is None:
            text = "no request of the chosen classes completed"
        else:
            text = f"{shares[worst]:.1%} of {worst.name.lower()} late, {self._allowed:.1%} allowed"
        return Judgement(passes, clear, enough, waiting, text)

    async def search(self, levels: Levels) -> Answer:
        held = await self._search.run(levels)
        target = f"p{self._slo.percentile:g} of {LATENCIES[self._slo.latency]} within its target"
        if held is None:
            high = self._search.high
            assert high is not None, "a search that ends without a pass has a failure"
            return Answer(
                high.level, high.measure, f"Not even the lowest load has {target}", facts=self._facts(high)
            )
        thin = self._not_judged(self._every_window(held))
        if thin:
            reason = f"No verdict on {', '.join(thin)}: fewer than {MIN_COMPLETIONS} completed requests"
        elif held.level >= self._options.highest:
            reason = f"The highest load allowed still has {target}"
        else:
            number = self._search.windows(held.level)
            windows = f" over its {number} windows" if number > 1 else ""
            reason = f"Largest load with {target}, confirmed: {held.judgement.text}{windows}"
        # A class that has no users keeps nobody from concluding about the others.
        enough = held.judgement.enough
        return Answer(held.level, held.measure, reason, enough, self._facts(held), 0 if enough else 2)

    def so_far(self) -> Answer:
        answer, low = self._search.answer_so_far(), self._search.low
        return replace(answer, facts={"levels": self._levels()} if low is None else self._facts(low))

    def line(self, measure: StageMeasure) -> str:
        return self.judge(measure).text

    def judged(self, measure: StageMeasure) -> dict[str, bool]:
        return self.judge(measure).facts()

    def goodput(self, measure: StageMeasure) -> tuple[Interval, Interval]:
        """Requests and generated tokens per second of the chosen classes that were within their target."""
        batches, tokens = [], []
        for qos, limit_ms in self._slo.limits_ms.items():
            rows = measure.rows.classes[qos]
            within = rows.chosen_ns <= limit_ms * NS_PER_MS
            batches.append(rows.batch[within])
            tokens.append(rows.tokens[within])
        batch, token = np.concatenate(batches), np.concatenate(tokens)
        return rate_interval(np.ones_like(batch), batch, measure.rows), rate_interval(
            token, batch, measure.rows
        )

    def _every_window(self, held: Held) -> StageMeasure:
        """All windows of a level together: they decide, not the one that is the result."""
        return self._search.held[held.level].measure

    def _facts(self, held: Held) -> dict[str, Any]:
        together = self._every_window(held)
        requests, tokens = self.goodput(together)
        return {
            "slo": self._promise(held.level),
            "levels": self._levels(),
            "target_met": None if self._not_judged(together) else held.judgement.passes,
            **self.judged(together),
            "goodput_requests_per_sec": requests.mean,
            "goodput_requests_per_sec_ci95": [requests.low, requests.high],
            "goodput_tokens_per_sec": tokens.mean,
            "goodput_tokens_per_sec_ci95": [tokens.low, tokens.high],
            "next_level_that_failed": self._search.next_failed(held),
        }

    def _levels(self) -> list[dict[str, Any]]:
        """Every level as it was judged: by all its windows together."""
        return [
            {"level": self._options.value(level), **held.judgement.facts(), **self._promise(level)}
            for level, held in sorted(self._search.held.items())
        ]

    def _promise(self, level: int) -> dict[str, Any]:
        """What came of each class at a level, by all its windows together."""
        together = self._search.held[level].measure
        limits_ms = self._slo.limits_ms.items()
        return {
            "latency": self._slo.latency,
            "percentile": self._slo.percentile,
            "windows": self._search.windows(level),
            "windows_passed": self._search.windows_passed(level),
            "measured_seconds": together.rows.seconds,
            "classes": {qos.name.lower(): self._class(together, qos, limit) for qos, limit in limits_ms},
        }

    def _class(self, measure: StageMeasure, qos: QoS, limit_ms: float) -> dict[str, Any]:
        late, total = self._violations(measure, qos)
        rows = measure.rows.classes[qos]
        values_ns = rows.chosen_ns
        enough = total >= MIN_COMPLETIONS
        return {
            "target_ms": limit_ms,
            "actual_ms": percentile(values_ns, self._slo.percentile) / NS_PER_MS if len(values_ns) else None,
            "requests": total,
            "violations": late,
            "failed": rows.failed,
            "waiting": total - len(values_ns) - rows.failed,
            "verdict": ("met" if late <= self._allowed * total else "missed") if enough else "no verdict",
        }
