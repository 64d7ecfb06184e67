"""Sizes of KV beside those of the package kvcache-simulator 0.1.3, for every model that both know."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvspill.models import find_model

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


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the package says, installed into a directory of its own."""
    place = tmp_path_factory.mktemp("kvcache-simulator")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(place), PACKAGE]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if installed.returncode != 0:
        pytest.skip(f"{PACKAGE} cannot be installed here: {installed.stderr.strip().splitlines()[-1:]}")
    return asked(place)


def asked(place: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", _SCRIPT, json.dumps(list(DTYPES.values())), json.dumps(CONTEXTS)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=place, timeout=60)
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
