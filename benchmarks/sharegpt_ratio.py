"""Holds the validation command on our conversations against a count of them; prints the read/write ratio."""

import heapq
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kvspill.cli.main import main as kvspill
from kvspill.workload import samples
from kvspill.world import World
from lib.machine import say, table

SAMPLE = Path(str(samples.__file__)).parent / "sharegpt_500.json"
COMMAND = f"""--model mistral-7b --dataset-path {SAMPLE} --max-conversations 500 --gpu-mem-gb 0 --cpu-mem-gb 0
    --num-users 50 --max-requests 500 --generation-mode none --seed 42"""
BYTES_PER_TOKEN = 131_072
GIB = 1 << 30
PUBLISHED_RATIO = 12.4
PUBLISHED_REQUESTS, PUBLISHED_WRITES, PUBLISHED_TOKENS = 549, 449, 147_313
PUBLISHED_HISTORY = (74, 372)
"""The published result of this command: requests, entries written, tokens, earlier turns found of asked."""


@dataclass(frozen=True, slots=True)
class Count:
    """What a run of the command moves."""

    read_bytes: int
    written_bytes: int
    hits: int
    misses: int

    @property
    def ratio(self) -> float:
        return self.read_bytes / self.written_bytes


def token_counter() -> Callable[[str], int]:
    """tiktoken where it can be had, else four characters per token."""
    try:
        import tiktoken

        encoding = tiktoken.get_encoding("cl100k_base")
    except Exception:
        return lambda text: max(1, len(text) // 4)
    return lambda text: max(1, len(encoding.encode_ordinary(text)))


def first_requests(users: int, requests: int, seed: int) -> list[tuple[int, int, int]]:
    """Context, generated and previous context tokens of the first requests, by the users' pauses alone."""
    tokens = token_counter()
    talks = json.loads(SAMPLE.read_text())
    asked: list[tuple[int, int, int, int, int]] = []
    for user in range(users):
        chance = World(seed).rng("sharegpt", user).random
        _class, usual_ns = chance(), int((0.1 + 0.4 * chance()) * 1e9)
        at_ns = int(usual_ns * chance())
        # A user whose conversations are over holds them again: five passes are more than anyone needs.
        for talk in (talks * 5)[user::users]:
            messages, before = talk["conversations"], 0
            for human, answer in zip(messages[::2], messages[1::2], strict=False):
                context = tokens(human["value"])
                asked.append((at_ns, user, context, tokens(answer["value"]), before))
                at_ns += int(usual_ns * (1 + 0.2 * (2 * chance() - 1)))
                before = context
    return [row[2:] for row in heapq.nsmallest(requests, asked, key=lambda row: row[:2])]


def independent_count(rows: list[tuple[int, int, int]], bytes_per_token: int = BYTES_PER_TOKEN) -> Count:
    """Each request reads the turn before, writes its entry and reads that 1 + ceil(generated / 32) times."""
    read = sum((1 + -(-generated // 32)) * context + before for context, generated, before in rows)
    written = sum(context for context, _generated, _before in rows)
    hits = sum(1 + -(-generated // 32) + (before > 0) for _context, generated, before in rows)
    return Count(read * bytes_per_token, written * bytes_per_token, hits, 0)


def counted(output: Path) -> Count:
    """The same figures from a result file."""
    cache = json.loads(output.read_text())["summary"]["cache_stats"]
    return Count(
        round(cache["decode_bytes_read_gb"] * GIB),
        round(cache["prefill_bytes_written_gb"] * GIB),
        cache["cache_hits"],
        cache["cache_misses"],
    )


def main() -> int:
    """Run the command in virtual time, count it, print both; 1 where they differ."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "result.json"
        if kvspill(["simulate", *COMMAND.split(), "--quiet", "--output", str(output)]):
            return 1
        ours = counted(output)
    rows = first_requests(users=50, requests=500, seed=42)
    count = independent_count(rows)
    cells = [
        (name, f"{found.read_bytes:,}", f"{found.written_bytes:,}", f"{found.hits:,}", f"{found.misses:,}")
        for name, found in (("kvspill", ours), ("counted", count))
    ]
    say(table(("", "bytes read", "bytes written", "hits", "misses"), cells))
    say(f"read/write ratio: {ours.ratio:.2f}; published for this command: {PUBLISHED_RATIO}, because")
    generated = sum(row[1] for row in rows) / len(rows)
    all_written = PUBLISHED_RATIO * PUBLISHED_WRITES / PUBLISHED_REQUESTS
    found, asked = PUBLISHED_HISTORY
    for reason in (
        f"{PUBLISHED_REQUESTS - PUBLISHED_WRITES} of its {PUBLISHED_REQUESTS} requests wrote no entry; "
        f"had all written alike, its ratio would be about {all_written:.1f}",
        f"its answers have {PUBLISHED_TOKENS / PUBLISHED_REQUESTS:.0f} tokens on average, ours "
        f"{generated:.0f}: every 32 are one more read",
        f"it found {found} of {asked} turns before, as turns were not kept in order; here all are found",
        "its texts are ShareGPT's, ours are made from word lists",
    ):
        say(f"- {reason}")
    return 0 if ours == count else 1


if __name__ == "__main__":
    sys.exit(main())
