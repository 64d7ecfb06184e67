"""The slo mode: the largest load whose chosen latency stays within its target for the chosen classes."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from kvspill.measure.priorities import MIN_COMPLETIONS, SURE_COMPLETIONS
from kvspill.measure.statistics import Interval, percentile
from kvspill.records import NS_PER_MS, NS_PER_SEC, QoS
from kvspill.result.classes import LATENCIES, is_near
from kvspill.run.search.bracket import BracketSearch, Held, Judgement
from kvspill.run.search.controller import PATIENCE, Answer, Levels
from kvspill.run.search.options import SearchOptions
from kvspill.run.search.stage import Longs, StageMeasure, rate_interval, share_interval

UP, DOWN = 2.0, 0.5
DRAWN_SIGMAS = 3
"""A class has hardly ever more users than its share by so many standard deviations."""
OWN_SHARE = 0.25
"""Where kvspill itself was late by so much of the target of a class that fails, the stage goes on: whatever
kept the processors from it may pass."""


class SloMode(BracketSearch):
    """A percentile is within its target where at most the rest of the requests exceed it.

    Counting what exceeds the target needs no estimate of the percentile itself, and failures count too.
    """

    def __init__(self, options: SearchOptions):
        super().__init__(options)
        self._slo = options.slo
        self._allowed = 1 - options.slo.percentile / 100

    def _late(self, measure: StageMeasure, qos: QoS) -> tuple[Longs, Longs]:
        """For each of a class's requests 1 where it missed its target, and its batch.

        Failures count. So does with open arrivals who has waited longer than the target, as its latency
        counts waits; the waits of closed users are bounded, and theirs count where few were answered.
        """
        if self._options.drain:
            return self._counted(measure, qos, waiting=True)
        return self._closed(measure, qos)[0]

    def _closed(self, measure: StageMeasure, qos: QoS) -> tuple[tuple[Longs, Longs], bool]:
        """The same of closed users, and whether the class clearly fails, whatever follows.

        Enough answers speak for themselves: who waits at the end of a window would count too much. So would
        they beside a few answers that keep the target.
        """
        answered = self._counted(measure, qos, waiting=False)
        if len(answered[0]) >= MIN_COMPLETIONS or self._has_hope(answered[0]):
            return answered, self._is_certain(measure, qos, *answered)
        every = self._counted(measure, qos, waiting=True)
        return every, self._is_certain(measure, qos, *every)

    def _is_clear(self, measure: StageMeasure, qos: QoS) -> bool:
        """Whether a class surely fails; waits of closed users alone end no stage whose users may catch up."""
        if self._options.drain:
            return self._surely(measure, *self._late(measure, qos))
        certain = self._closed(measure, qos)[1]
        return certain or self._surely(measure, *self._counted(measure, qos, waiting=False))

    def _lacks(self, measure: StageMeasure, qos: QoS, total: int) -> bool:
        """Whether a class needs more requests; those that wait bring it no nearer, unless it surely fails."""
        if not self._options.drain and not self._closed(measure, qos)[1]:
            total = len(self._counted(measure, qos, waiting=False)[0]) or total
        return total < MIN_COMPLETIONS

    def _has_hope(self, answered: Longs) -> bool:
        """Whether those who were answered keep the target."""
        return len(answered) > 0 and float(answered.mean()) <= self._allowed

    def _counted(self, measure: StageMeasure, qos: QoS, *, waiting: bool) -> tuple[Longs, Longs]:
        """The same with or without those that wait; failures and waits are taken for the last batch's."""
        rows = measure.rows.classes[qos]
        limit_ns = self._slo.limits_ms[qos] * NS_PER_MS
        others = rows.failed + (int((rows.waiting_ns > limit_ns).sum()) if waiting else 0)
        late = np.concatenate([rows.chosen_ns > limit_ns, np.ones(others, dtype=bool)]).astype(np.int64)
        batch = np.concatenate([rows.batch, np.full(others, measure.rows.batches - 1)]).astype(np.int64)
        return late, batch

    def _is_certain(self, measure: StageMeasure, qos: QoS, late: Longs, batch: Longs) -> bool:
        """Whether a class of closed users clearly misses its target, whatever follows in the longest window.

        Who has waited beyond the target is late whenever the answer comes, and the others can ask no more
        often than on storage that takes no time.
        """
        options, rows = self._options, measure.rows.classes[qos]
        answered = self._counted(measure, qos, waiting=False)[0]
        if self._has_hope(answered):
            return False
        drawn = options.highest * options.class_shares.get(qos, 1.0)
        users = min(options.highest, drawn + DRAWN_SIGMAS * math.sqrt(drawn))
        longest_seconds = PATIENCE * options.pace.longest * options.pace.interval_ns / NS_PER_SEC
        rounds = options.rounds_per_sec * max(0.0, longest_seconds - measure.seconds)
        most = len(answered) + len(rows.waiting_ns) + users * (1 + rounds)
        return int(late.sum()) > self._allowed * most and self._surely(measure, late, batch)

    def _surely(self, measure: StageMeasure, late: Longs, batch: Longs) -> bool:
        """Whether more of these requests are late than is allowed, whatever chance did."""
        return len(late) >= SURE_COMPLETIONS and (
            share_interval(late, batch, measure.rows.batches)[0] > self._allowed
        )

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
        rows = {qos: self._late(measure, qos) for qos in shares}
        failing = [qos for qos, share in shares.items() if share > self._allowed]
        if not failing:
            intervals = [share_interval(*of_class, measure.rows.batches) for of_class in rows.values()]
            clear = bool(intervals) and all(high <= self._allowed for _low, high in intervals)
        else:
            clear = any(self._is_clear(measure, qos) for qos in failing)
        # A class without a single request has no users: no time would help.
        few = [qos for qos, (_late, total) in counts.items() if total and self._lacks(measure, qos, total)]
        enough = bool(shares) and not few
        limits_ms = self._slo.limits_ms
        own = any(measure.rows.own_late_ms > OWN_SHARE * limits_ms[qos] for qos in failing)
        certain = not (self._options.drain or own) and any(self._closed(measure, qos)[1] for qos in limits_ms)
        waiting = not certain and (bool(few) or not shares)
        worst = max(shares, key=lambda qos: shares[qos], default=None)
        if worst is None:
            text = "no request of the chosen classes completed"
        else:
            text = f"{shares[worst]:.1%} of {worst.name.lower()} late, {self._allowed:.1%} allowed"
        return Judgement(not failing, clear, enough, waiting, text, certain, own)

    def factor(self, measure: StageMeasure, passed: bool) -> float:  # noqa: ARG002 - how far off says nothing
        return UP if passed else DOWN

    async def search(self, levels: Levels) -> Answer:
        held = await self.find(levels)
        target = f"the p{self._slo.percentile:g} of {LATENCIES[self._slo.latency]} within its target"
        if held is None:
            lone = self._options.lowest == self._options.highest
            high = self.high
            assert high is not None, "a search that ends without a pass has a failure"
            none = "The load does not keep" if lone else "Not even the lowest load keeps"
            judged = high.judgement.enough or high.judgement.clear
            return self.lowest_failed(f"{none} {target}" if judged else self._too_few(high))
        if self._not_judged(self._every_window(held)):
            reason = self._too_few(held)
        elif held.level >= self._options.highest:
            reason = f"The highest load allowed still keeps {target}"
        else:
            reason = f"Largest load that keeps {target}, confirmed: {self.evidence(held)}"
        # A class that has no users keeps nobody from concluding about the others.
        enough = held.judgement.enough
        return Answer(held.level, held.measure, reason, enough, self.facts(held), 0 if enough else 2)

    def _too_few(self, held: Held) -> str:
        thin = self._not_judged(self._every_window(held))
        return f"No verdict on {', '.join(thin)}: fewer than {MIN_COMPLETIONS} completed requests"

    def so_far(self) -> Answer:
        answer = super().so_far()
        return replace(answer, facts=answer.facts or {"levels": self._levels()})

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
        return self.held[held.level].measure

    def facts(self, held: Held) -> dict[str, Any]:
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
            "next_level_that_failed": self.next_failed(held),
        }

    def _levels(self) -> list[dict[str, Any]]:
        """Every level as it was judged: by all its windows together."""
        return [
            {"level": self._options.value(level), **held.judgement.facts(), **self._promise(level)}
            for level, held in sorted(self.held.items())
        ]

    def is_near(self, level: int) -> bool:
        return any(
            is_near(row["target_ms"], row["actual_ms"], row["by_window_ms"])
            for row in self._promise(level)["classes"].values()
            if row["actual_ms"] is not None
        )

    def _promise(self, level: int) -> dict[str, Any]:
        """What came of each class at a level, by all its windows together."""
        together = self.held[level].measure
        limits_ms = self._slo.limits_ms.items()
        return {
            "latency": self._slo.latency,
            "percentile": self._slo.percentile,
            "windows": self.windows(level),
            "windows_passed": self.windows_passed(level),
            "measured_seconds": together.rows.seconds,
            "classes": {
                qos.name.lower(): {
                    **self._class(together, qos, limit),
                    "by_window_ms": [self._actual_ms(one, qos) for one in self.measures(level)],
                }
                for qos, limit in limits_ms
            },
        }

    def _actual_ms(self, measure: StageMeasure, qos: QoS) -> float | None:
        """The percentile of those that completed; None without any."""
        values_ns = measure.rows.classes[qos].chosen_ns
        return percentile(values_ns, self._slo.percentile) / NS_PER_MS if len(values_ns) else None

    def _class(self, measure: StageMeasure, qos: QoS, limit_ms: float) -> dict[str, Any]:
        late, total = self._violations(measure, qos)
        rows = measure.rows.classes[qos]
        enough = total >= MIN_COMPLETIONS
        return {
            "target_ms": limit_ms,
            "actual_ms": self._actual_ms(measure, qos),
            "requests": total,
            "violations": late,
            "failed": rows.failed,
            "waiting": total - len(rows.chosen_ns) - rows.failed,
            "verdict": ("met" if late <= self._allowed * total else "missed") if enough else "no verdict",
        }
