"""Scenario files: the built-in ones are complete and runnable, broken ones are named by file and key."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvspill.config import Config
from kvspill.errors import KvspillError, UsageError
from kvspill.suite import scenario as module
from kvspill.suite.scenario import (
    BY_NAME,
    builtin_text,
    builtins,
    canonical,
    default_names,
    fill,
    load,
    select,
    to_config,
    unavailable,
)
from kvspill.suite.sizing import Sizes
from unit.suite.test_sizing import sizes


def filled(name: str, found: Sizes | None = None) -> list[module.Scenario]:
    return [fill(row, found or sizes(quick=True), {"cache_dir": ["/x"]}) for row in select([name])]


def test_nothing_named_means_the_nine_in_their_order() -> None:
    tiers = ["gpu-only", "cpu-only", "storage-only", "gpu-cpu", "cpu-storage", "gpu-cpu-storage"]
    nine = [*tiers, "storage-saturation", "production", "autoscale"]
    assert [row.name for row in select([])] == list(default_names()) == nine
    further = ["capacity-autoscale", "mlperf_submission", "rag", "kitchen-sink", "engines", "smoke"]
    assert list(builtins()) == [*nine, *further]


def test_all_adds_the_further_ones() -> None:
    names = [row.name for row in select(["all"])]
    assert names[:9] == list(default_names())
    assert {"capacity-autoscale", "mlperf-8b", "mlperf-70b", "rag", "kitchen-sink", "engine-vllm-fs"} <= set(
        names
    )


@pytest.mark.parametrize("name", list(builtins()))
def test_every_built_in_scenario_is_valid(name: str) -> None:
    for row in filled(name):
        assert unavailable(row.settings) is None
        assert to_config(row).duration is not None


def test_memory_scenarios_have_no_storage_and_storage_only_has_no_memory() -> None:
    configs = {name: to_config(filled(name)[0]) for name in default_names()[:6]}
    assert [name for name, config in configs.items() if config.storage_tier == "off"] == [
        "gpu-only",
        "cpu-only",
        "gpu-cpu",
    ]
    assert (configs["storage-only"].gpu_bytes, configs["storage-only"].cpu_bytes) == (0, 0)
    assert configs["gpu-only"].cpu_bytes == 0


def test_production_is_closed_and_saturation_is_open() -> None:
    # L2: production users wait for their answers.
    assert to_config(filled("production")[0]).arrival == "closed"
    assert to_config(filled("storage-saturation")[0]).arrival == "open"


def test_smoke_has_the_eight_with_their_parameters() -> None:
    rows = select(["smoke"])
    assert len(rows) == 8
    users = [row.settings["num_users"] for row in rows]
    assert users == [50, 100, 20, 10, 150, 40, 30, 10]
    assert [row.settings["duration"] for row in rows] == [180, 300, 300, 180, 600, 600, 300, 300]
    assert all(row.settings["seed"] == 42 for row in rows)


def test_a_missing_gpu_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    row = filled("autoscale")[0]
    assert unavailable(row.settings) is None
    monkeypatch.setattr(module, "why_unusable", lambda: "no driver; install it")
    answer = unavailable({**row.settings, "gpu_tier": "real"})
    assert answer == "needs --gpu-tier real: no driver; install it"


def test_budgets_above_the_machine_are_lowered_and_said() -> None:
    row = filled("smoke")[1]
    assert row.settings["cpu_mem_gb"] == 4.0
    assert "DRAM 32 -> 4 GiB (what this suite may take here)" in row.notes
    assert "duration 300 -> 75 s (--quick)" in row.notes


def test_without_quick_the_users_of_a_file_are_kept() -> None:
    row = filled("smoke", sizes())[0]
    assert row.settings["num_users"] == 50
    assert row.settings["duration"] == 180


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("GPU", "gpu-only"),
        ("gpu+cpu", "gpu-cpu"),
        ("storage_only", "storage-only"),
        ("mlperf", "mlperf_submission"),
    ],
)
def test_other_spellings_are_understood(word: str, name: str) -> None:
    assert canonical(word) == name


def test_an_unknown_name_suggests_a_near_one() -> None:
    with pytest.raises(UsageError, match="did you mean production"):
        select(["producton"])


def test_the_shown_text_is_a_file_that_loads_again(tmp_path: Path) -> None:
    for name in builtins():
        (tmp_path / "mine.yaml").write_text(builtin_text(name))
        assert [row.name for row in load(tmp_path / "mine.yaml")] == [row.name for row in select([name])]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no list of scenarios"),
        ("scenarios: []", "no list of scenarios"),
        ("scenario: [{name: a}]", "unknown key"),
        ("scenarios: [3]", "scenario 1: is not a mapping"),
        ("scenarios: [{name: ../a}]", "no name for a file"),
        ("scenarios: [{name: a, konfig: {}}]", "'konfig'|konfig: unknown key"),
        ("scenarios: [{name: a, config: {num_user: 3}}]", "did you mean num_users"),
        ("scenarios: [{name: a, config: {output: x}}]", "belongs to the whole suite"),
        ("scenarios: [{name: a, config: {io_trace_log: x}}]", "belongs to the whole suite"),
        ("scenarios: [{name: a, config: [1]}]", "config is not a mapping"),
        ("scenarios: [{name: a}, {name: a}]", "appears twice"),
        ("scenarios: [{name: a, config: {num_users: '${nope}'}}]", "nope.*unknown; use one of"),
        ("scenarios: [{name: a, config: {num_users: -1}}]", "a: num_users -1: out of range"),
    ],
)
def test_a_broken_file_is_one_line_that_names_the_place(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=says) as caught:
        [to_config(fill(row, sizes(), {})) for row in select([str(path)])]
    assert "\n" not in str(caught.value)


def test_placeholders_keep_their_type_and_work_inside_lists(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "scenarios: [{name: a, config: {num_users: '${users}', model: '${model}', cpu_mem_gb: 1}}]"
    )
    row = fill(load(path)[0], sizes(users=9), {})
    assert row.settings["num_users"] == 9
    assert row.settings["model"] == "llama3.1-8b"


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**20),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["${users}", "${nope}", "off", "llama3.1-8b", "closed"]),
    st.lists(st.integers(), max_size=2),
)
_NAMES = sorted(set(Config.model_fields) - {"sources", "ignored_keys"})


@given(st.dictionaries(st.sampled_from(_NAMES), _SCALARS, max_size=6), st.booleans())
def test_whatever_a_file_says_the_answer_is_a_configuration_or_one_line(
    settings: dict[str, object], quick: bool
) -> None:
    row = module.Scenario("a", "a", "", settings, "a.yaml")
    said = ""
    try:
        filled_row = fill(row, sizes(quick=quick), {})
        to_config(filled_row)
    except KvspillError as error:
        said = str(error)
    assert "\n" not in said


def test_a_new_file_in_the_folder_is_a_new_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "scenarios"
    folder.mkdir()
    for item in builtins().values():
        (folder / item.path.name).write_text(item.path.read_text())
    (folder / "mine.yaml").write_text("scenarios: [{name: mine, config: {num_users: 3}}]")
    monkeypatch.setattr(module, "_SCENARIOS", folder)
    builtins.cache_clear()
    try:
        assert [row.name for row in select(["mine"])] == ["mine"]
        assert list(builtins())[-1] == "mine"
        assert "mine" in [row.name for row in select(["all"])]
        assert "mine" not in default_names()
    finally:
        builtins.cache_clear()


def test_names_and_aliases_of_built_in_scenarios_are_unique() -> None:
    words = [word for name, item in builtins().items() for word in (name, *item.aliases)]
    assert len(words) == len(set(words))
    assert [name for name, item in builtins().items() if item.runs == BY_NAME] == ["smoke"]
