"""Makes the samples of this directory: `python -m kvspill.workload.samples.make_samples`."""

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

SEED = 20260105
CONVERSATIONS = 500

TOPICS: dict[str, tuple[str, ...]] = {
    "garden": ("raised bed", "compost heap", "tomato row", "apple tree", "hedge", "rain barrel", "lawn"),
    "kitchen": ("sourdough", "bean stew", "knife set", "oven", "spice shelf", "stock pot", "pie crust"),
    "bicycle": ("rear wheel", "chain", "brake cable", "saddle", "gear hub", "headset", "inner tube"),
    "spreadsheet": ("pivot table", "date column", "budget sheet", "chart", "lookup formula", "filter"),
    "program": ("parser", "test suite", "cache", "queue", "log file", "command line", "config loader"),
    "travel": ("night train", "ferry", "packing list", "rental flat", "museum pass", "hiking map"),
    "letter": ("complaint", "cover letter", "invitation", "reference", "thank-you note", "lease notice"),
    "school": ("fraction exercise", "history essay", "physics quiz", "vocabulary list", "reading plan"),
    "house": ("window frame", "bathroom fan", "door lock", "heating pump", "bookshelf", "attic floor"),
    "music": ("scale exercise", "choir part", "guitar neck", "rhythm pattern", "practice room", "duet"),
}
VERBS = (
    *("check", "measure", "clean", "replace", "sketch", "sort", "label", "test", "adjust", "write down"),
    *("compare", "shorten", "repeat", "mark", "weigh", "open", "store", "split", "combine", "review"),
)
REASONS = (
    "because small errors add up later",
    "since nobody remembers it after a month",
    "so that the next step takes half the time",
    "as the first attempt is rarely the best one",
    "because the parts rarely fit as drawn",
    "so that you can stop early if it goes wrong",
    "as it costs little and shows a lot",
    "since the season decides more than the tool",
    "because guests notice that first",
    "so that the result can be repeated",
)
MOODS = ("quickly", "with care", "in two passes", "before noon", "by hand", "from left to right", "in pairs")
QUESTIONS = (
    "How do I {verb} the {thing} when there is only {n} {unit} left?",
    "What should I {verb} first: the {thing} or the {other}?",
    "My {thing} gave up after {n} {unit}. Can it be saved?",
    "Please give me a plan to {verb} the {thing} {mood}.",
    "Why do people {verb} the {thing} at all?",
    "Explain the {thing} to somebody who only knows the {other}.",
    "I tried to {verb} the {thing} {mood}, and now the {other} is worse. What did I miss?",
    "Shorten your last answer and keep the part about the {thing}.",
)
DETAILS = (
    "I have about {n} {unit} and no help.",
    "The {other} is old but works.",
    "Last year we did {verb} it {mood}, {reason}.",
    "It must not cost more than {n} coins.",
    "Here are my notes: {thing}, {other}, {n} {unit}, {mood}.",
    "My neighbour says to {verb} the {other} instead, {reason}.",
)
ANSWERS = (
    "First {verb} the {thing} {mood}, {reason}.",
    "Then {verb} the {other} and wait {n} {unit}.",
    "If the {thing} resists, {verb} it again, but never for more than {n} {unit}.",
    "Most people {verb} the {other} too late, {reason}.",
    "Keep the {thing} and the {other} apart until both are dry, named and counted.",
    "A list helps: one line for the {thing}, one for the {other}, one for what is left over.",
    "You can also {verb} the {thing} {mood}; it takes {n} {unit} longer.",
    "In short, {verb} less, look more often, and write the figure on the {other}.",
    "That is normal: a {thing} needs {n} {unit} before it settles, {reason}.",
    "Do not {verb} both at once, {reason}.",
)
UNITS = ("minutes", "hours", "days", "metres", "litres", "pages", "attempts")


def _pick(rng: random.Random, words: Sequence[str]) -> str:
    return words[int(rng.random() * len(words))]


def _sentence(rng: random.Random, template: str, things: Sequence[str]) -> str:
    text = template.format(
        verb=_pick(rng, VERBS),
        thing=_pick(rng, things),
        other=_pick(rng, things),
        mood=_pick(rng, MOODS),
        reason=_pick(rng, REASONS),
        unit=_pick(rng, UNITS),
        n=2 + int(rng.random() * 48),
    )
    return text[0].upper() + text[1:]


def _length(rng: random.Random, median: float, spread: float) -> int:
    """Characters of a message: mostly short, now and then very long, as in recorded chats."""
    normal = math.sqrt(-2 * math.log(1 - rng.random())) * math.cos(2 * math.pi * rng.random())
    return round(median * math.exp(spread * normal))


def _message(
    rng: random.Random, things: Sequence[str], first: str, templates: Sequence[str], chars: int
) -> str:
    sentences = [_sentence(rng, first, things)]
    while sum(map(len, sentences)) < chars:
        sentences.append(_sentence(rng, _pick(rng, templates), things))
    return " ".join(sentences)


def conversation(number: int, rng: random.Random) -> dict[str, Any]:
    """One conversation: one to some ten questions with their answers; a few end on an open question."""
    things = TOPICS[_pick(rng, list(TOPICS))]
    turns = 1 + min(9, int(-1.6 * math.log(1 - rng.random())))
    messages = []
    for _ in range(turns):
        asked = _message(rng, things, _pick(rng, QUESTIONS), DETAILS, min(6000, _length(rng, 95, 1.0)))
        answer = _message(rng, things, _pick(rng, ANSWERS), ANSWERS, min(6000, _length(rng, 720, 0.65)))
        messages += [{"from": "human", "value": asked}, {"from": "gpt", "value": answer}]
    if rng.random() < 0.05:
        messages.append({"from": "human", "value": _sentence(rng, _pick(rng, QUESTIONS), things)})
    return {"id": f"own{number:04d}_0", "conversations": messages}


def _rows(rng: random.Random, count: int, per_sec: float) -> Iterator[tuple[float, int, int]]:
    """Times in seconds, context tokens and generated tokens."""
    at = 0.0
    for _ in range(count):
        yield at, 1 + min(30_000, _length(rng, 900, 1.0)), 1 + min(2_000, _length(rng, 120, 0.9))
        at += -math.log(1 - rng.random()) / per_sec


def azure(rng: random.Random) -> str:
    """Over midnight, so that the date matters."""
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for at, context, generated in _rows(rng, 60, 2):
        when = datetime(2026, 1, 5, 23, 59, 50) + timedelta(seconds=at)
        lines.append(f"{when:%Y-%m-%d %H:%M:%S.%f}0,{context},{generated}")
    return "\n".join(lines) + "\n"


def burstgpt(rng: random.Random) -> str:
    """With sessions, and with failed requests that have no tokens."""
    lines = ["Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"]
    for number, (at, context, generated) in enumerate(_rows(rng, 60, 0.5)):
        session = f"own-session-{number % 7}" if number % 3 == 0 else ""
        if number % 20 == 19:
            context = generated = 0
        kind = "Conversation log" if session else "API log"
        counts = f"{context},{generated},{context + generated}"
        lines.append(f"{at + 100:.1f},{session},{generated // 20},own-model,{counts},{kind}")
    return "\n".join(lines) + "\n"


def _chained(rng: random.Random, block_tokens: int, entry: Callable[..., dict[str, Any]]) -> str:
    """Rows with block hashes: some go on from an earlier row and so begin with its blocks."""
    lines: list[str] = []
    chats: list[tuple[int, list[int], int]] = []
    fresh = 0
    for number, (at, context, generated) in enumerate(_rows(rng, 60, 1)):
        parent = chats.pop(int(rng.random() * len(chats))) if chats and rng.random() < 0.5 else None
        blocks = list(parent[1]) if parent else []
        total = len(blocks) * block_tokens + context
        while len(blocks) * block_tokens < total:
            blocks.append(fresh)
            fresh += 1
        lines.append(json.dumps(entry(number, at, total, generated, blocks, parent)))
        chats.append((number, blocks, parent[2] + 1 if parent else 1))
    return "\n".join(lines) + "\n"


def mooncake(rng: random.Random) -> str:
    return _chained(
        rng,
        512,
        lambda _number, at, total, generated, blocks, _parent: {
            "timestamp": round(at * 1000),
            "input_length": total,
            "output_length": generated,
            "hash_ids": blocks,
        },
    )


def kvcache(rng: random.Random) -> str:
    return _chained(
        rng,
        64,
        lambda _number, at, total, generated, blocks, _parent: {
            "timestamp": round(at * 1000),
            "block_size": 64,
            "input_length": total,
            "output_length": generated,
            "hash_ids": blocks,
        },
    )


def lmcache(rng: random.Random) -> str:
    return _chained(
        rng,
        256,
        lambda number, at, total, _generated, blocks, _parent: {
            "timestamp": round(at, 6),
            "request_id": f"r{number}",
            "model_name": "sample",
            "chunk_size": 256,
            "seq_len": total,
            "chunk_hashes": [f"0x{block:016x}" for block in blocks[: total // 256]],
        },
    )


def bailian(rng: random.Random) -> str:
    return _chained(
        rng,
        16,
        lambda number, at, total, generated, blocks, parent: {
            "chat_id": number,
            "parent_chat_id": parent[0] if parent else -1,
            "timestamp": round(at, 3),
            "input_length": total,
            "output_length": generated,
            "type": "text",
            "turn": parent[2] + 1 if parent else 1,
            "hash_ids": blocks,
        },
    )


def _agent(rng: random.Random, at: float, count: int, fresh: int) -> tuple[list[dict[str, Any]], float, int]:
    """An agent's requests from a time on, when it ended and the next unused block id."""
    requests: list[dict[str, Any]] = []
    blocks: list[int] = []
    for number in range(count):
        for _ in range(4 + int(rng.random() * 12)):
            blocks.append(fresh)
            fresh += 1
        think, api = round(rng.random() * 5, 2), round(1 + rng.random() * 4, 2)
        at = round(at + (think if number else 0.0), 2)
        requests.append(
            {
                "t": at,
                "type": "n",
                "model": "own-model",
                "in": len(blocks) * 64 + int(rng.random() * 64),
                "out": 20 + int(rng.random() * 200),
                "hash_ids": list(blocks),
                "api_time": api,
                "think_time": think if number else 0.0,
            }
        )
        at = round(at + api, 2)
    return requests, at, fresh


def weka(number: int, rng: random.Random) -> str:
    requests, at, fresh = _agent(rng, 0.0, 5, 1)
    inner, at, fresh = _agent(rng, at, 3, fresh)
    sub = {"t": inner[0]["t"], "type": "subagent", "agent_id": "helper", "requests": inner}
    after, _at, _fresh = _agent(rng, at, 2, fresh)
    session = {
        "id": f"own_{number}",
        "models": ["own-model"],
        "block_size": 64,
        "hash_id_scope": "local",
        "tool_tokens": 0,
        "system_tokens": 0,
        "requests": [*requests, sub, *after],
    }
    return json.dumps(session) + "\n"


def main() -> None:
    """Write all samples beside this file."""
    here = Path(__file__).parent
    rng = random.Random(SEED)
    talks = [json.dumps(conversation(number, rng)) for number in range(CONVERSATIONS)]
    (here / "sharegpt_500.json").write_text("[\n" + ",\n".join(talks) + "\n]\n")
    makers = {
        "azure.csv": azure,
        "burstgpt.csv": burstgpt,
        "mooncake.jsonl": mooncake,
        "bailian.jsonl": bailian,
        "kvcache.jsonl": kvcache,
        "lmcache.jsonl": lmcache,
    }
    for name, make in makers.items():
        (here / name).write_text(make(random.Random(f"{SEED} {name}")))
    (here / "weka").mkdir(exist_ok=True)
    for number in range(3):
        session = weka(number, random.Random(f"{SEED} weka {number}"))
        (here / "weka" / f"session_{number}.json").write_text(session)


if __name__ == "__main__":
    main()
