"""The validation command of the specification on our sample equals a short independent count, exactly."""

import heapq
import json
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.workload import samples
from kvspill.world import World

SAMPLE = Path(str(samples.__file__)).parent / "sharegpt_500.json"
COMMAND = f"""--model mistral-7b --dataset-path {SAMPLE} --max-conversations 500 --gpu-mem-gb 0 --cpu-mem-gb 0
    --num-users 50 --max-requests 500 --generation-mode none --seed 42"""
BYTES_PER_TOKEN = 131_072


def tokens(text: str) -> int:
    try:
        import tiktoken

        return max(1, len(tiktoken.get_encoding("cl100k_base").encode_ordinary(text)))
    except Exception:
        return max(1, len(text) // 4)


def independent_count(users: int, requests: int, seed: int) -> dict[str, int]:
    """Bytes and hits of the first requests, from the sample and the users' pauses alone."""
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
    count = dict.fromkeys(("read", "written", "hits", "misses"), 0)
    first = heapq.nsmallest(requests, asked, key=lambda row: row[:2])
    for _at_ns, _user, context, generated, before in first:
        decodes = 1 + -(-generated // 32)
        count["written"] += context * BYTES_PER_TOKEN
        count["read"] += (decodes * context + before) * BYTES_PER_TOKEN
        count["hits"] += decodes + (before > 0)
    return count


def run(tmp_path: Path, *argv: str) -> dict[str, Any]:
    output = tmp_path / "result.json"
    assert main([*argv, *COMMAND.split(), "--quiet", "--output", str(output)]) == 0
    result: dict[str, Any] = json.loads(output.read_text())
    return result


def counted(result: dict[str, Any]) -> dict[str, int]:
    cache = result["summary"]["cache_stats"]
    return {
        "read": round(cache["decode_bytes_read_gb"] * 2**30),
        "written": round(cache["prefill_bytes_written_gb"] * 2**30),
        "hits": cache["cache_hits"],
        "misses": cache["cache_misses"],
    }


def test_the_validation_command_moves_what_an_independent_count_of_the_sample_gives(tmp_path: Path) -> None:
    result = run(tmp_path, "simulate")
    assert counted(result) == independent_count(users=50, requests=500, seed=42)
    assert result["requests_completed"] == 500
    assert result["workload"]["kind"] == "sharegpt"


@pytest.mark.real
def test_a_real_run_moves_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The smallest model keeps this within seconds on any disk; the count scales with its bytes per token.
    monkeypatch.chdir(tmp_path)
    small = ["--model", "tiny-1b", "--max-requests", "100", "--storage-capacity-gb", "2"]
    output = tmp_path / "real.json"
    argv = [*COMMAND.split(), *small, "--cache-dir", str(tmp_path), "--quiet", "--output", str(output)]
    assert main(["run", *argv]) == 0
    expected = independent_count(users=50, requests=100, seed=42)
    for name in ("read", "written"):
        expected[name] = expected[name] // BYTES_PER_TOKEN * 24_576
    assert counted(json.loads(output.read_text())) == expected
