"""A plan as plain data and as text: the answer in words, then the options side by side."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvspill import __version__
from kvspill.machine.environment import working_directory
from kvspill.plan.notes import OFF_TITLE, OPTIONS, by_users, is_change, load, notes_of, resolution
from kvspill.plan.planning import Asked, Found, Row, costs, doubts, enough, nodes_for, wear
from kvspill.plan.simulations import Facts
from kvspill.plan.variations import OFF_BY, Variation
from kvspill.records import GIB, Tier
from kvspill.run.verdict import Level
from kvspill.texts import aligned, duration, listed, size_text, wrapped

YES, NO, NO_VERDICT = "yes", "no", "no verdict"


def document(found: Found, target: str, settings: str, argv: Sequence[str]) -> dict[str, Any]:
    """All of it for programs; target and settings are the question in words."""
    asked = found.asked
    answer = {True: YES, False: NO, None: NO_VERDICT}[found.holds]
    interval = found.interval()
    plan: dict[str, Any] = {
        "kvspill_plan": 1,
        "kvspill_version": __version__,
        "answer": answer,
        "model": asked.config.model,
        "asked": asked.level,
        "asked_is": "times the recorded speed" if asked.by_speed else "users",
        "max_nodes": asked.nodes_max,
        "target": target,
        "settings": settings,
        "chosen": _row(asked, found.chosen),
        "holds_between": None if interval is None else list(interval),
        "options": [_row(asked, row) for row in found.rows],
        "sensitivity": [_varied(asked, found.chosen, *pair) for pair in found.sensitivity],
        "would_help": [_varied(asked, found.chosen, *pair) for pair in found.helps],
        "other_seeds_and_speeds": {name: facts["passed"] for name, facts in found.others},
        "command": shlex.join(["kvspill", "plan", *argv]),
        "command_directory": working_directory(),
        "check": None,
    }
    plan["notes"] = notes_of(plan)
    return {**plan, "text": list(lines(plan))}


def _row(asked: Asked, row: Row) -> dict[str, Any]:
    known = row.choice.option.calibrated
    return {
        "name": row.choice.label,
        "profile": row.choice.option.name,
        "drives": row.choice.drives,
        "dram_gib": row.choice.dram_gib,
        "dram_speed": str(row.choice.profile()[Tier.CPU]),
        "holds": row.holds,
        "holds_at_least": row.holds is not None and row.limit["failed"] is None,
        "fewest_that_failed": row.limit["failed"],
        "answer": None if row.answer is None else row.answer.value,
        "answer_by_seed": "" if row.told is None else row.told["seeds"],
        "users_asked_about": None if row.told is None else row.told_load,
        "nodes": row.nodes,
        "enough": None if row.holds is None else enough(asked, row),
        "binds": row.limit["binds"],
        "because": row.limit["because"],
        "helps": row.limit["helps"],
        "load_of_a_node": row.node_load,
        "predicted": {} if row.point is None else row.point["figures"],
        "cost": costs(asked, row),
        "wear": wear(asked, row),
        "break_even": None if row.point is None else row.point["break_even"],
        "calibrated": None if known is None else {"device": known.device, "date": known.date},
        "doubts": doubts(asked, row),
    }


def _varied(asked: Asked, chosen: Row, varied: Variation, facts: Facts) -> dict[str, Any]:
    """What a figure that is off would change."""
    row = replace(chosen, limit=facts)
    holds = row.holds
    now = enough(asked, replace(row, nodes=nodes_for(asked, holds)))
    return {
        "figure": varied.figure,
        "factor": varied.factor,
        "holds": holds,
        "holds_at_least": holds is not None and facts["failed"] is None,
        "changes_the_answer": holds is not None and now is not enough(asked, chosen),
    }


def lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """The words, the verdict first (P4)."""
    chosen = plan["chosen"]
    yield f"{plan['answer'].upper()} (predicted): {_headline(plan)}"
    if chosen["answer_by_seed"]:
        who = load(plan, chosen["users_asked_about"])
        yield f"Results by seed (each draws other users), {who} on one such node: {chosen['answer_by_seed']}."
    if chosen["holds"]:
        yield _holds(plan)
    yield f"Bottleneck: {chosen['because']}"
    if plan["would_help"] and not chosen["holds_at_least"]:
        yield from _helps(plan)
    cost = chosen["cost"]
    if cost is not None:
        yield _cost_line(cost, chosen)
    if chosen["wear"] is not None:
        yield _wear_line(chosen["wear"])
    worn_out = _cheaper_but_worn_out(plan)
    if worn_out:
        yield f"Left out for wear, though cheaper: {worn_out}."
    if chosen["break_even"] is not None:
        yield _break_even_line(chosen["break_even"])
    if plan["sensitivity"]:
        yield _sensitivity_line(plan)
    for text in chosen["doubts"]:
        yield f"Not certain: {text}."
    yield f"Target: {plan['target']}."
    yield f"Asked with: {plan['settings']}."


def _headline(plan: Mapping[str, Any]) -> str:
    chosen, several = plan["chosen"], by_users(plan) and plan["asked"] != 1
    who = f"{load(plan, plan['asked'])} of {plan['model']}"
    if not by_users(plan):
        who = f"the recording with {plan['model']} at {load(plan, plan['asked'])}"
    if plan["answer"] == YES:
        where, because = (
            _nodes_text(chosen["nodes"], chosen["name"]),
            f"one such node holds {_about(plan, chosen)}",
        )
        return f"{who} {'keep' if several else 'keeps'} the latency target on {where}, because {because}."
    if plan["answer"] == NO_VERDICT:
        differ = chosen["answer_by_seed"]
        why = "most seeds agree on neither yes nor no" if differ else "the time was too short for a verdict"
        return f"{who} on {chosen['name']}: {why}; give a longer --duration."
    missing = f"{who} {'do' if several else 'does'} not keep the latency target"
    if chosen["holds"] == 0:
        return f"{missing}, because none of the options holds any of it."
    if chosen["holds"] is None:
        return f"{missing} on any of the options."
    limit = f"{plan['max_nodes']} nodes" if plan["max_nodes"] > 1 else "one node"
    best = f"the best of them, {chosen['name']}, holds {_about(plan, chosen)} a node"
    return f"{missing} on {limit} of any option, because {best}."


def _nodes_text(nodes: int | None, name: str) -> str:
    return f"{nodes} nodes of {name}" if nodes and nodes > 1 else name


def _level(level: Level) -> str:
    return f"{level:,}" if isinstance(level, int) else f"{level:.3g}"


def _about(plan: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    return f"{'at least' if row['holds_at_least'] else 'about'} {load(plan, row['holds'])}"


def _holds(plan: Mapping[str, Any]) -> str:
    chosen = plan["chosen"]
    text = f"A node of {chosen['name']} holds {_about(plan, chosen)}"
    if chosen["fewest_that_failed"] is not None and plan["answer"] != NO_VERDICT:
        text += f"; {_level(chosen['fewest_that_failed'])} would miss the target"
    low, high = plan["holds_between"]
    if not plan["other_seeds_and_speeds"]:
        return f"{text}."
    tried = "other seeds" + (" and the spread of its calibration" if chosen["calibrated"] else "")
    between = "the same" if low == high else f"{_level(low)} to {_level(high)}"
    return f"{text}. With {tried} it is {between}."


def _helps(plan: Mapping[str, Any]) -> Iterator[str]:
    """What was doubled and holds more; where nothing does, that it was tried."""
    held = plan["chosen"]["holds"] or 0
    more = [
        row for row in plan["would_help"] if row["holds"] and row["holds"] > held and is_change(plan, row)
    ]
    others = [row for row in plan["would_help"] if row["holds"] and row not in more]
    same = [f"twice the {row['figure']}" for row in others]
    if more:
        yield f"What would help: {'; '.join(_helped(plan, row) for row in more)}."
    elif same:
        text = listed(same, "or")
        helps = plan["chosen"]["helps"].replace("--num-users", "--users")
        gain = "hardly more" if any(row["holds"] > held for row in others) else "no more"
        yield f"What would help: {helps} {text[:1].upper()}{text[1:]} would hold {gain}."


def _helped(plan: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    return f"twice the {row['figure']} would hold {_about(plan, row)}"


def _cost_line(cost: Mapping[str, Any], chosen: Mapping[str, Any]) -> str:
    unit = cost["currency"]
    text = f"Cost: {_money(cost['per_month'], unit)} a month for {_nodes_text(chosen['nodes'], 'it')}"
    text = text.replace(" for it", "")
    if cost["per_user_per_month"] is not None:
        text += f", {_money(cost['per_user_per_month'], unit)} a user"
    if cost["per_million_tokens"] is not None:
        text += f", {_money(cost['per_million_tokens'], unit)} for a million generated tokens"
    text += f" (purchases are spread over {cost['years']:g} years)"
    return text + (", without the drives, which have no price." if cost["lacks_price_of_drives"] else ".")


def _money(amount: float, unit: str) -> str:
    return f"{amount:,.2f} {unit}" if amount >= 1 else f"{amount:.3g} {unit}"


def _wear_line(worn: Mapping[str, Any]) -> str:
    if not worn["written_bytes_per_day_per_drive"]:
        return "Wear: nothing is written to a drive under this load."
    text = f"Wear: {_daily(worn)} a day is written to each drive"
    if "drive_writes_per_day" in worn:
        text += f", {worn['drive_writes_per_day']:.2f} drive writes a day"
    if "share_of_endurance" not in worn:
        return f"{text}; give capacity= and endurance= to see what that means for it."
    share = worn["share_of_endurance"]
    early = ": it would wear out early" if share > 1 else ""
    return f"{text}, {share:.0%} of its endurance{early}."


def _daily(worn: Mapping[str, Any]) -> str:
    """What is written to a drive in a day, in whole GiB where that shows three digits."""
    nbytes = round(worn["written_bytes_per_day_per_drive"])
    return f"{nbytes / GIB:,.0f} GiB" if nbytes >= 100 * GIB else size_text(nbytes)


def _cheaper_but_worn_out(plan: Mapping[str, Any]) -> str:
    """Options that hold as much for less money, but not for as long; empty where there are none."""
    chosen = plan["chosen"]
    if chosen["cost"] is None or not chosen["enough"] or _worn(chosen) > 1:
        return ""
    found = [
        row
        for row in plan["options"]
        if row["enough"] and row["cost"] and row["cost"]["per_month"] < chosen["cost"]["per_month"]
    ]
    return ", ".join(f"{row['name']} ({_worn(row):.0%} of its endurance)" for row in found if _worn(row) > 1)


def _worn(row: Mapping[str, Any]) -> float:
    return float((row["wear"] or {}).get("share_of_endurance", 0.0))


def _break_even_line(even: Mapping[str, Any]) -> str:
    verdict = "reading pays" if even["pays"] else "recomputing would be faster"
    return (
        f"Break-even: an entry of {even['entry_tokens']:,.0f} tokens is read from storage in "
        f"{duration(even['load_ms'])} and recomputed in {duration(even['recompute_ms'])} (modelled, "
        f"{even['recompute_us_per_token']:g} us per token): {verdict}."
    )


def _sensitivity_line(plan: Mapping[str, Any]) -> str:
    near = [row for row in plan["sensitivity"] if row["changes_the_answer"] and not is_change(plan, row)]
    changing = [row for row in plan["sensitivity"] if row["changes_the_answer"] and row not in near]
    open_ones = [row for row in plan["sensitivity"] if row["holds"] is None]
    text = f"Sensitivity: no figure that is {OFF_BY:.0%} off would change the answer"
    if changing:
        held = ", ".join(f"{_off(row)} (a node holds {_level(row['holds'])})" for row in changing)
        text = f"Sensitivity: the answer would change with {held}"
    if near:
        text += f"; what is asked for is as near to the limit as the search is exact ({resolution(plan)})"
    if open_ones:
        text += f"; no verdict with {', '.join(map(_off, open_ones))}"
    return f"{text}."


def _off(row: Mapping[str, Any]) -> str:
    return f"{row['figure']} {OFF_BY:.0%} {'lower' if row['factor'] < 1 else 'higher'}"


def text_of(plan: Mapping[str, Any]) -> str:
    """The tables below the words."""
    notes = plan["notes"]
    parts = (
        f"{title}:\n{aligned(table)}" + (f"\n{wrapped(notes[title])}" if title in notes else "")
        for title, table in tables_of(plan).items()
    )
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def tables_of(plan: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """The tables by their titles; the first row of each has the heads."""
    found = {OPTIONS: _options(plan)}
    if plan["sensitivity"]:
        found[OFF_TITLE] = _figures(plan)
    return found


def _options(plan: Mapping[str, Any]) -> list[list[str]]:
    rows = plan["options"]
    priced = any(row["cost"] for row in rows)
    head = ["option", "holds", "nodes", "bottleneck"]
    head += ["read p95", "tok/s", "written/day", "wear", "beats recomputing"]
    money = ["per month", "per user", "per M tokens"] if priced else []
    table = [[*head, *money]]
    for row in rows:
        cells = [_mark(plan, row), _held(row), _nodes(row), row["binds"], *_point(row)]
        table.append([*cells, *(_prices(row["cost"]) if priced else [])])
    return table


def _mark(plan: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    return f"{'* ' if row['name'] == plan['chosen']['name'] else '  '}{row['name']}"


def _held(row: Mapping[str, Any]) -> str:
    if row["holds"] is None:
        return "no verdict"
    return f"{_level(row['holds'])}{'+' if row['holds_at_least'] else ''}"


def _nodes(row: Mapping[str, Any]) -> str:
    if row["nodes"] is None:
        return "none"
    return f"{row['nodes']:,}{'' if row['enough'] else ' (more than --max-nodes)'}"


def _point(row: Mapping[str, Any]) -> list[str]:
    seen, worn, even = row["predicted"], row["wear"], row["break_even"]
    p95, tokens = seen.get("storage_read_p95_ms"), seen.get("avg_throughput_tokens_per_sec")
    share = None if worn is None else worn.get("share_of_endurance")
    return [
        duration(p95),
        "-" if tokens is None else f"{tokens:,.0f}",
        "-" if worn is None else _daily(worn),
        "-" if share is None else f"{share:.0%}",
        "-" if even is None else ("yes" if even["pays"] else "no"),
    ]


def _prices(cost: Mapping[str, Any] | None) -> list[str]:
    if cost is None:
        return ["-", "-", "-"]
    values = [cost["per_month"], cost["per_user_per_month"], cost["per_million_tokens"]]
    return ["-" if value is None else _money(value, cost["currency"]) for value in values]


def _figures(plan: Mapping[str, Any]) -> list[list[str]]:
    low, high = f"{OFF_BY:.0%} lower", f"{OFF_BY:.0%} higher"
    table = [["figure", low, high]]
    by_figure: dict[str, dict[float, Mapping[str, Any]]] = {}
    for row in plan["sensitivity"]:
        by_figure.setdefault(row["figure"], {})[row["factor"]] = row
    for name, found in by_figure.items():
        table.append([f"  {name}", *(_changed(plan, found[factor]) for factor in sorted(found))])
    return table


def _changed(plan: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    if not is_change(plan, row):
        return "same"
    return f"{_held(row)}{', the answer changes' if row['changes_the_answer'] else ''}"
