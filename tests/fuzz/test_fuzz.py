"""Broken input of every kind: one line and an exit code, no traceback, no hang, no write elsewhere."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fuzz.mutations import mangled, retyped
from fuzz.seeds import seeds
from fuzz.targets import TARGETS, Escape, fuzz_page, fuzz_words, guarded, sandbox
from kvspill.config.fields import flag_of
from kvspill.config.load import flag_fields

EXAMPLES = int(os.environ.get("KVSPILL_FUZZ_EXAMPLES", "60"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # A failing input is printed as it is: making it smaller would take minutes.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
JSON_TARGETS = ("result", "manifest", "sharegpt", "weka", "mooncake", "bailian", "kvcache", "lmcache")


@pytest.mark.parametrize("name", TARGETS)
def test_well_formed_input_gets_through(name: Any) -> None:
    with sandbox() as root:
        for data in seeds(name):
            TARGETS[name](data, root)


@pytest.mark.parametrize("name", TARGETS)
def test_mangled_bytes_get_one_line(name: Any, tally: Any) -> None:
    target, start = TARGETS[name], seeds(name)

    @FUZZ
    @given(mangled(start))
    def check(data: Any) -> None:
        tally[f"{name}, mangled bytes"] += 1
        with sandbox() as root:
            target(data, root)

    check()


@pytest.mark.parametrize("name", JSON_TARGETS)
def test_documents_with_odd_values_get_one_line(name: Any, tally: Any) -> None:
    target, start = TARGETS[name], seeds(name)

    @FUZZ
    @given(retyped(start))
    def check(data: Any) -> None:
        tally[f"{name}, odd values"] += 1
        with sandbox() as root:
            target(data, root)

    check()


def test_a_page_of_a_damaged_result_is_made_or_refused(tally: Any) -> None:
    @settings(FUZZ, max_examples=max(5, EXAMPLES // 4))
    @given(retyped(seeds("result")))
    def check(data: Any) -> None:
        tally["page, odd values"] += 1
        with sandbox() as root:
            fuzz_page(data, root)

    check()


FLAGS = sorted({flag_of(name) for name in flag_fields()} - {"--debug"})
COMMANDS = ("run", "simulate", "quick", "suite", "compare", "report", "models", "clean")
ODD_WORDS = ["0", "-1", "1", "3", "1e9", "nan", "inf", "", " ", "on", "off", "null", "4MiB", "5%", "x.json"]
CHARACTERS = st.characters(exclude_characters="/\0.", exclude_categories=["Cs"]) | st.just("\udcff")
VALUES = st.sampled_from(ODD_WORDS) | st.text(CHARACTERS, max_size=12)
WORDS = st.lists(
    st.sampled_from([*COMMANDS, "help", "--", "-h"])
    | st.sampled_from(FLAGS)
    | VALUES
    | st.builds(lambda flag, value: f"{flag}={value}", st.sampled_from(FLAGS), VALUES),
    max_size=6,
)


def test_any_command_line_gets_an_answer(tally: Any) -> None:
    @settings(FUZZ, max_examples=EXAMPLES * 5)
    @given(st.sampled_from(COMMANDS), WORDS)
    def check(first: Any, words: Any) -> None:
        tally["command lines"] += 1
        with sandbox() as root:
            fuzz_words("\0".join([first, *words]).encode("utf-8", "surrogateescape"), root)

    check()


def test_a_write_outside_would_be_noticed(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(Escape, match="elsewhere"), guarded(inside):
        (tmp_path / "elsewhere").write_text("x")
