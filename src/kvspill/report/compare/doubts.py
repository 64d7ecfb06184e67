"""How far a comparison can be trusted: what was left out, what else differs, what repeats nothing."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from kvspill.report.compare.matching import Matching, Pairs, differing_plans
from kvspill.report.compare.run import INFERENCE, Run, labelled, modelled_tiers, unranked
from kvspill.report.settings import canonical
from kvspill.result.reading import KV_CACHE_PY
from kvspill.result.warnings.certainty import FEW_TRIALS
from kvspill.result.warnings.known import titles
from kvspill.texts import counted, listed

FEW_RUNS = 3
SAME_LENGTH = 0.02


def doubts(matching: Matching, set_aside: Sequence[Run], zeros: Sequence[str]) -> Iterator[str]:
    first, second = matching.side(0), matching.side(1)
    yield from no_ranks((*first, *second))
    yield from idle_storage((*first, *second))
    yield from memory_for_drive((*first, *second))
    if set_aside:
        yield "Set aside, in no figure: " + named(f"{run.name} {run.incomplete}" for run in set_aside) + "."
    yield from _matching(matching)
    yield from kinds(first, second)
    fewest = min(min(len(ours), len(theirs)) for ours, theirs in matching.pairs)
    if fewest < FEW_RUNS:
        count = counted(fewest, "run")
        yield f"Only {count} of a configuration on a side: give {FEW_RUNS} or more to know the spread."
    if _repeats_exactly(matching.pairs):
        yield (
            "Simulated runs of one seed repeat exactly: their interval has no width and says nothing about "
            "the spread; simulate other seeds."
        )
    if zeros:
        yield f"A run has a zero in {', '.join(zeros)}: it counts as a value, never as missing."
    if any(run.kind == KV_CACHE_PY for run in (*first, *second)):
        yield "Results of kv-cache.py hold no configuration: only what file names say is known of the set-up."
    length = different_lengths(first, second)
    if length is not None:
        yield f"The sides ran for {length}"
    work = _work(matching.pairs)
    if work is not None:
        yield work
    for name, side in (("A", first), ("B", second)):
        codes = dict.fromkeys(code for run in side for code in run.cautions if code != FEW_TRIALS.code)
        if codes:
            yield f"Warnings in the results of {name}: {titles(codes)}."


def no_ranks(runs: Iterable[Run]) -> Iterator[str]:
    """Results that can be looked at, but not ranked."""
    for name, reason in unranked(runs).items():
        yield f"{name} {reason}. It is not ranked."


def idle_storage(runs: Iterable[Run]) -> Iterator[str]:
    """Why runs have no figure of the storage that they were given."""
    names = list(dict.fromkeys(run.result_name or run.name for run in runs if run.without_storage_io))
    if names:
        its, it = ("its", "it") if len(names) == 1 else ("their", "them")
        yield (
            f"Memory served everything in {named(names, ', ')}: {its} storage was not used, so {its} figures "
            f"of storage are left out (-) and give {it} no rank."
        )


def memory_for_drive(runs: Iterable[Run]) -> Iterator[str]:
    """What figures of storage and NVMe are of where the directory lies in memory."""
    names = list(dict.fromkeys(run.result_name or run.name for run in runs if run.in_memory))
    if names:
        yield (
            f"The storage tier of {named(names, ', ')} lay in memory, not on a drive: figures of "
            "storage and NVMe are of that memory."
        )


def named(names: Iterable[str], between: str = "; ", most: int = 8) -> str:
    """A few names, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return between.join(every[:most]) + more


def _matching(matching: Matching) -> Iterator[str]:
    for name, left_out in zip("AB", matching.unmatched, strict=True):
        if left_out:
            verb = "is" if len(left_out) == 1 else "are"
            yield (
                f"{counted(len(left_out), 'run')} of {name} matched nothing on the other side and {verb} in "
                f"no figure (by {', '.join(matching.by)}): {named(run.name for run in left_out)}."
            )
    if matching.ignored:
        yield (
            f"Matched without {', '.join(matching.ignored)}: they vary on one side, and the other side does "
            "not record them."
        )


def kinds(first: Sequence[Run], second: Sequence[Run]) -> Iterator[str]:
    """Real inference, storage I/O and simulation are three different things."""
    found = [{run.kind == INFERENCE for run in side} for side in (first, second)]
    if found[0] != found[1]:
        yield "One side is real inference, the other storage I/O alone: their tokens/s are not comparable."
    simulated = [{run.simulated for run in side} for side in (first, second)]
    if simulated[0] != simulated[1]:
        yield "One side is simulated, the other measured: the ratio judges the model, not the device."
    elif True in simulated[0]:
        both = "Both sides are simulated" if simulated == [{True}, {True}] else "Some runs are simulated"
        yield f"{both}: no byte moved."
    yield from modelled_on(first, second)


def modelled_on(first: Sequence[Run], second: Sequence[Run]) -> Iterator[str]:
    """Which tiers a device model stood for, and where."""
    ours, theirs = modelled_tiers(first), modelled_tiers(second)
    if not ours and not theirs:
        return
    where = named(labelled(run.name, modelled_tiers([run])) for run in (*first, *second) if run.modelled)
    unlike = bool(first and second) and ours != theirs
    judged = "a ratio to others judges the model, not the device" if unlike else "no byte moved on that tier"
    yield f"Times come from a device model in {where}: {judged}."


def different_lengths(first: Sequence[Run], second: Sequence[Run]) -> str | None:
    """What to say where the measured windows are not equally long."""
    lengths = [[run.seconds for run in side if run.seconds] for side in (first, second)]
    if not all(lengths) or abs(fmean(lengths[1]) / fmean(lengths[0]) - 1) <= SAME_LENGTH:
        return None
    return (
        f"different times ({fmean(lengths[0]):.1f} s and {fmean(lengths[1]):.1f} s): volumes such as "
        "decode bytes grow with time; compare rates."
    )


def _repeats_exactly(pairs: Pairs) -> bool:
    sides = [side for pair in pairs for side in pair if len(side) > 1]
    return any(
        all(run.simulated for run in side) and len({tuple(sorted(run.values.items())) for run in side}) == 1
        for side in sides
    )


def _work(pairs: Pairs) -> str | None:
    """Whether both sides planned the same operations, seed by seed."""
    strange = False
    for pair in pairs:
        ours, theirs = ({run.digest for run in side if run.digest is not None} for side in pair)
        if not ours or not theirs or ours == theirs:
            continue
        plans = [_plans(side) for side in pair]
        common = plans[0].keys() & plans[1].keys()
        if not common or any(plans[0][seed] != plans[1][seed] for seed in common):
            return _other_work(*pair)
        strange = True
    return "Some seeds ran on one side only: those runs planned other operations." if strange else None


def _other_work(first: Sequence[Run], second: Sequence[Run]) -> str:
    """Why the sides planned other operations."""
    text = "The digests differ: the sides did not plan the same operations"
    other = differing_plans(first, second)
    if other:
        return f"{text}, because they differ in {listed(other)}."
    if all(run.config.get("arrival") == "closed" and run.config.get("duration") for run in (*first, *second)):
        return (
            f"{text}, because users who wait for their answers ask more of faster storage in the same time; "
            "--max-requests gives both sides the same work."
        )
    return f"{text}."


def _plans(runs: Sequence[Run]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for run in runs:
        if run.digest is not None and run.config.get("seed") is not None:
            found.setdefault(canonical(run.config["seed"]), set()).add(run.digest)
    return found
