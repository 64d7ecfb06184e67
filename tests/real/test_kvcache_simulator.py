"""Sizes of KV and hit rates beside those of the package kvcache-simulator 0.1.3."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.curve.accesses import collect, requests_of, workload_of
from kvspill.curve.curve import LruCurve
from kvspill.curve.replay import OPTIMUM, Replayer, Window
from kvspill.models import find_model
from kvspill.plugins import Kind, find_plugins
from kvspill.records import GIB
from kvspill.serving.chains import chain_of

pytestmark = pytest.mark.real

PACKAGE = "kvcache-simulator==0.1.3"
CONTEXTS = (1_000, 8_192, 131_072)
DTYPES = {"bf16": "bf16_fp16", "fp8": "fp8_int8", "fp4": "fp4_int4"}
OTHER_NAMES = {
    "llama-3.1-8b": "llama3.1-8b",
    "llama-3.1-70b": "llama3.1-70b-instruct",
    "llama-3.3-70b": "llama3.3-70b",
}
WITHOUT_FORMULA = {
    "dots3-note-prev",
    "deepseek-v4.1-flash",
    "glm-5.3-flash",
    "inkling",
    "inkling-small",
}
"""Listed by the package, which has no formula for them in this version and raises an error."""

_SCRIPT = """
import json, sys
from kvcache_sim.calculator import calculate_cache_size, load_models_data
data = load_models_data()
found = {}
for model in data["models"]:
    # Published types of states: the package takes bfloat16 for Qwen3.8, whose file says float32.
    options = {"recurrent_state_precision": "fp32", "include_linear_attention_state": True}
    try:
        found[model["id"]] = {
            f"{precision} {tokens}": calculate_cache_size(
                model, tokens=tokens, precision=precision, models_data=data, **options
            ).total_bytes
            for precision in json.loads(sys.argv[1])
            for tokens in json.loads(sys.argv[2])
        }
    except ValueError as error:
        found[model["id"]] = str(error)
print(json.dumps(found))
"""


_SWEEP = """
import json, sys
from kvcache_sim.simulator import run_sweep
from kvcache_sim.trace import parse_trace_file
trace = parse_trace_file(sys.argv[1])
found = run_sweep(trace, model_id="llama-3.1-8b", budgets_gib=json.loads(sys.argv[2]), backend="python")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, installed into a directory of its own."""
    place = tmp_path_factory.mktemp("kvcache-simulator")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(place), PACKAGE]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if installed.returncode != 0:
        pytest.skip(f"{PACKAGE} cannot be installed here: {installed.stderr.strip().splitlines()[-1:]}")
    return place


@pytest.fixture(scope="module")
def others(package: Path) -> dict[str, Any]:
    """What the package says of its models."""
    command = [sys.executable, "-c", _SCRIPT, json.dumps(list(DTYPES.values())), json.dumps(CONTEXTS)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=package, timeout=60)
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def test_every_model_that_both_know_takes_the_same_bytes(others: dict[str, Any]) -> None:
    different = {}
    compared = 0
    for name, sizes in others.items():
        if name in WITHOUT_FORMULA:
            continue
        model = find_model(OTHER_NAMES.get(name, name))
        for dtype, precision in DTYPES.items():
            for tokens in CONTEXTS:
                ours, theirs = model.stored_as(dtype).kv().of(tokens), sizes[f"{precision} {tokens}"]
                compared += 1
                if ours != theirs:
                    different[name, dtype, tokens] = (ours, theirs)
    assert different == {}
    assert compared == 57 * 9


def test_the_package_has_no_formula_for_the_rest(others: dict[str, Any]) -> None:
    assert {name for name, sizes in others.items() if isinstance(sizes, str)} == WITHOUT_FORMULA


MOONCAKE = Path(__file__).parents[3] / "shared" / "data" / "mooncake" / "conversation_trace.jsonl"


def mooncake(path: Path) -> None:
    """The Mooncake conversation trace with the size of its blocks."""
    if not MOONCAKE.exists():
        pytest.skip("the trace is not here")
    with path.open("w") as file:
        for line in MOONCAKE.open():
            file.write(json.dumps({"block_size": 512, **json.loads(line)}) + "\n")


def shipped(path: Path) -> None:
    plugin = find_plugins(Kind.TRACE).get("kvcache", "--trace")
    assert plugin.sample is not None
    path.write_bytes(plugin.sample.read_bytes())


def synthetic(path: Path) -> None:
    """Ten synthetic users, their blocks under numbers."""
    config = Config(num_users=10, duration=40, io_model="prefix", block_tokens=256)
    numbers: dict[str, int] = {}
    with path.open("w") as file:
        for request in requests_of(config, workload_of(config)):
            keys = chain_of(request, 256).keys
            if keys:
                ids = [numbers.setdefault(key, len(numbers)) for key in keys]
                row = {"block_size": 256, "input_length": 256 * len(ids), "hash_ids": ids}
                file.write(json.dumps(row) + "\n")


@pytest.mark.parametrize(
    ("make", "capacities_gib"),
    [(mooncake, [300, 1000]), (shipped, [0.2, 0.4]), (synthetic, [4, 8])],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_hit_rates_are_the_same_over_the_same_window(
    make: Callable[[Path], None], capacities_gib: list[float], package: Path, tmp_path: Path
) -> None:
    """LRU, FIFO and the optimum over the last half of the requests, by tokens."""
    path = tmp_path / "trace.jsonl"
    make(path)
    command = [sys.executable, "-c", _SWEEP, str(path), json.dumps(capacities_gib)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=package, timeout=600)
    theirs = json.loads(answer.stdout)
    accesses = collect(Config(trace=f"kvcache:{path}", io_model="prefix", model="llama3.1-8b"))
    window = Window(accesses, accesses.requests // 2)
    lru, replayer = LruCurve(window), Replayer(window)
    assert len(theirs["points"]) == len(capacities_gib)
    assert lru.rates(accesses.footprint_bytes).tokens == pytest.approx(theirs["hitRateCeiling"], abs=1e-9)
    for point in theirs["points"]:
        nbytes = int(point["gib"] * GIB)
        ours = {
            "lru": lru.rates(nbytes),
            "fifo": replayer.rates(("fifo", nbytes)),
            "optimal": replayer.rates((OPTIMUM, nbytes)),
        }
        for policy, rates in ours.items():
            assert rates.tokens == pytest.approx(point["results"][policy]["hitRate"], abs=0.001), policy
