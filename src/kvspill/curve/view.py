"""A curve as text: rates by capacity and policy, where it bends, what more is worth, two tiers as a map."""

from collections.abc import Mapping
from typing import Any

from kvspill.texts import aligned, counted, size_text


def text_of(curve: Mapping[str, Any]) -> str:
    """What is printed."""
    rates = f"Token hit rate by capacity (LRU also by requests and bytes):\n{aligned(rates_of(curve))}"
    parts = ["\n".join(_head(curve)), rates, "\n".join(_findings(curve)), _tiers(curve)]
    return "\n\n".join(parts) + "\n"


def words_of(curve: Mapping[str, Any]) -> list[str]:
    """What is printed beside the tables."""
    return [*_head(curve), *_findings(curve)]


def _head(curve: Mapping[str, Any]) -> list[str]:
    ceiling = curve["ceiling"]
    some = ceiling["requests"]
    more = (
        ""
        if some is None
        else (f", {ceiling['bytes']:.1%} of the blocks' bytes, and something for {some:.1%} of the requests")
    )
    requests, measured = curve["requests"], curve["measured_requests"]
    whole = (
        "all requests" if measured == requests else f"the last {measured:,}; those before warm the cache up"
    )
    lines = [
        f"{curve['load']}: {counted(requests, 'request')}, {curve['block_accesses']:,} blocks "
        f"asked for, {curve['blocks']:,} different ones of {curve['model']}, "
        f"{size_text(curve['footprint_bytes'])} in all.",
        f"Measured: {whole} (--warmup-share {curve['warmup_share']:g}).",
        f"An unlimited cache finds {ceiling['tokens']:.1%} of the tokens{more}.",
    ]
    if curve["upper_bound"]:
        lines.append(
            f"UPPER BOUND: layers of {curve['model']} have windows or states. What belongs to the end of a "
            f"stored prefix, up to {size_text(curve['end_bytes'])} each, is not counted, neither its room "
            "nor its absence; `kvspill simulate --io-model prefix` counts it."
        )
    if not ceiling["tokens"]:
        lines.append(
            "NOTE: no measured request asks for a block that came before. Does the trace say which blocks "
            "requests share?"
        )
    overlong = curve["requests_with_more_blocks_than_tokens"]
    if overlong:
        lines.append(
            f"NOTE: {overlong:,} requests list more blocks than their tokens fill; blocks that are too many "
            "take room and count no tokens. Does the trace have blocks of that size?"
        )
    read = curve.get("workload", {})
    if skipped := read.get("bad_rows_skipped"):
        lines.append(
            f"NOTE: rows that could not be read were skipped, {skipped:,} in all, the first: "
            f"{read['bad_rows'][0]}."
        )
    if empty := read.get("empty_rows"):
        lines.append(f"NOTE: rows without a token were left out, {empty:,} in all.")
    sampling = curve["sampling"]
    if sampling is not None:
        errors = ", ".join(
            f"{name} {100 * error:.2f}" for name, error in sampling["token_hit_rate_errors"].items()
        )
        lines.append(
            f"SAMPLED: LRU on {sampling['lru_share']:.1%} of the blocks, the others on "
            f"{sampling['policies_share']:.1%}; token hit rates within {errors} points "
            f"({sampling['error_is']})."
        )
    return lines


def rates_of(curve: Mapping[str, Any]) -> list[list[str]]:
    """Token hit rates at the capacities that were asked for; the head first."""
    policies = curve["policies"]
    lru = {point["capacity_bytes"]: point for point in curve["lru"]}
    worth = [row for row in curve["next_tib"] if row["capacity_bytes"] > 0]
    rows = [
        [
            "capacity",
            *(f"LRU {what}" for what in ("requests", "bytes", "tokens")),
            *policies,
            "next TiB saves",
        ]
    ]
    for place, row in enumerate(worth):
        point = lru[row["capacity_bytes"]]
        rows.append(
            [
                size_text(row["capacity_bytes"]),
                *(
                    "-" if point[what] is None else f"{point[what]:.1%}"
                    for what in ("requests", "bytes", "tokens")
                ),
                *(f"{points[place]['tokens']:.1%}" for points in policies.values()),
                f"{row['prefill_seconds_saved']:,.0f} s",
            ]
        )
    return rows


def _findings(curve: Mapping[str, Any]) -> list[str]:
    lines = []
    bend = curve["bend"]
    if bend is not None:
        lines.append(
            f"The curve bends at {size_text(bend['capacity_bytes'])}, where LRU finds {bend['tokens']:.1%} "
            "of the tokens."
        )
    enough = [
        f"{share} at {size_text(nbytes)}"
        for share, nbytes in curve["capacity_for_share_of_ceiling"].items()
        if nbytes is not None
    ]
    if enough:
        lines.append(f"Of what can be found at all, LRU finds {', '.join(enough)}.")
    first = curve["next_tib"][0]["prefill_seconds_saved"]
    lines.append(
        f"The first TiB saves {first:,.0f} s of prefill over the measured requests (modelled: "
        f"{curve['recompute_us_per_token']:g} us per token, {curve['recompute_source']})."
    )
    return lines


def _tiers(curve: Mapping[str, Any]) -> str:
    tiers = curve["two_tiers"]
    storage = tiers["storage_bytes"]
    some = list(range(0, len(storage), max(1, len(storage) // 6)))
    rows = [["DRAM \\ storage", "none", *(size_text(storage[at]) for at in some)]]
    for nbytes, top, below in zip(
        tiers["dram_bytes"], tiers["found_in_dram"], tiers["found_in_storage"], strict=True
    ):
        rows.append([size_text(nbytes), f"{top:.1%}", *(f"+{below[at]:.1%}" for at in some)])
    return (
        "Two tiers: tokens found in DRAM, and what storage adds (LRU over both, the coldest sink):\n"
        + aligned(rows)
    )
