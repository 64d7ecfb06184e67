"""Claims about where values come from, and about files that are wrong."""

from pathlib import Path

import pytest

from kvspill.cli.default_yaml import default_yaml
from kvspill.config import Config
from kvspill.config.load import load_config
from kvspill.config.origins import OF_COMMAND, was_given
from kvspill.errors import UsageError

ROOT = Path(__file__).parents[3]


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def refused(**given: object) -> str:
    with pytest.raises(UsageError) as caught:
        load_config(**given)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refused_file(tmp_path: Path, text: str) -> str:
    path = write(tmp_path / "c.yaml", text)
    return refused(config_file=path).replace(f"{tmp_path}/", "")


def test_flag_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", "num_users: 3\nseed: 3\ntensor_parallel: 2\n")
    environ = {"KVSPILL_NUM_USERS": "4", "KVSPILL_SEED": "4"}
    config = load_config({"num_users": ("--users", "5")}, environ, path)
    assert (config.num_users, config.seed, config.tensor_parallel, config.cpu_mem_gb) == (5, 4, 2, 4)
    assert config.sources == {"num_users": "--users", "seed": "KVSPILL_SEED", "tensor_parallel": path}


def test_a_value_that_equals_the_default_is_known_to_be_given() -> None:
    config = load_config({"num_users": ("--num-users", "50")}, defaults={"cpu_mem_gb": 4.0})
    assert config.sources == {"num_users": "--num-users", "cpu_mem_gb": OF_COMMAND}
    found = {name: was_given(config, name) for name in ("num_users", "cpu_mem_gb", "seed")}
    assert found == {"num_users": True, "cpu_mem_gb": False, "seed": False}


@pytest.mark.parametrize("value", ["0", "0.0", "00"])
def test_a_zero_that_means_no_rate_leaves_the_arrivals_of_a_search_closed(value: str) -> None:
    """L2: closed arrivals are the default of the qos and slo autoscalers."""
    search = {"enable_autoscaling": ("--enable-autoscaling", True)}
    rate = {"request_rate": ("--request-rate", value)}
    assert load_config({**search, **rate}).arrival == "closed"
    assert load_config(search, {"KVSPILL_USE_BURST_TRACE": "off"}).arrival == "closed"
    assert load_config({"request_rate": ("--request-rate", "2"), **search}).arrival == "open"


@pytest.mark.parametrize("value", ["0", "00"])
def test_a_zero_that_means_no_number_of_requests_leaves_the_duration(value: str) -> None:
    """L4: no default duration where a number is given, and 0 is none."""
    given = {"max_requests": ("--max-requests", value)}
    assert load_config(given).duration == 60
    assert load_config(given, defaults={"duration": 30.0}).duration == 30


def test_environment_knows_the_aliases_of_flags() -> None:
    assert load_config({}, {"KVSPILL_USERS": "7", "KVSPILL_CPU_MEMORY_GB": "1"}).num_users == 7


def test_environment_takes_several_directories() -> None:
    assert load_config({}, {"KVSPILL_CACHE_DIR": "/a:/b"}).cache_dir == ("/a", "/b")


def test_addresses_in_the_environment_keep_their_colons() -> None:
    texts = "s3://bucket/a s3://bucket/b"
    assert load_config({}, {"KVSPILL_CACHE_DIR": texts}).cache_dir == ("s3://bucket/a", "s3://bucket/b")
    assert load_config({}, {"KVSPILL_CACHE_DIR": "my://host:80"}).cache_dir == ("my://host:80",)


def test_an_error_names_the_variable_that_gave_the_setting() -> None:
    small = {"KVSPILL_STORAGE_CAPACITY_GB": "2", "KVSPILL_WORKLOAD_PRESET": "2026-02"}
    line = refused(environ=small)
    assert line.startswith("KVSPILL_STORAGE_CAPACITY_GB=2: the storage tier can use 2.00 GiB of it")
    assert line.endswith("give KVSPILL_STORAGE_CAPACITY_GB=3.1 or more, or a smaller --model")
    by_flag = {"storage_capacity_gb": ("--storage-capacity-gb", "2")}
    assert refused(flags=by_flag, environ=small).startswith("--storage-capacity-gb 2: ")
    off = {"KVSPILL_STORAGE_TIER": "off", "KVSPILL_CPU_MEM_GB": "0"}
    assert refused(flags=by_flag, environ=off) == (
        "KVSPILL_STORAGE_TIER=off contradicts --storage-capacity-gb 2; leave one of them out"
    )
    assert "; give KVSPILL_CPU_MEM_GB or --gpu-mem-gb, or KVSPILL_STORAGE_TIER=on" in refused(environ=off)


def test_a_list_of_the_wrong_length_is_told_its_own_length(tmp_path: Path) -> None:
    line = refused(flags={"slo_classes": ("--slo-classes", "batch,batch,interactive,batch")})
    assert line.endswith("too many entries; give at most 3")
    assert refused_file(tmp_path, "gpu_device: []\n").endswith("too few entries; give 1 or more")
    line = refused_file(tmp_path, "personas: {coding: {context: [1, 2, 3]}}\n")
    assert line.endswith("too many entries; give exactly two numbers as [low, high]")


def test_environment_can_name_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", "num_users: 3\n")
    assert load_config({}, {"KVSPILL_CONFIG": path}).num_users == 3


def test_a_slip_in_a_variable_is_named_and_foreign_variables_are_left_alone() -> None:
    line = refused(environ={"KVSPILL_NUM_USER": "3"})
    assert line == "KVSPILL_NUM_USER: unknown variable; did you mean KVSPILL_NUM_USERS?"
    assert load_config({}, {"KVSPILL_HOME": "/opt"}) == Config()


def test_the_shipped_file_holds_the_defaults_but_for_the_closed_divisions_workload() -> None:
    text = (ROOT / "config.yaml").read_text()
    assert text == default_yaml(), "run: python -m kvspill.cli.default_yaml > config.yaml"
    config = load_config({}, {}, str(ROOT / "config.yaml"))
    closed = Config(workload_preset="2026-02", sync="data")
    assert config.model_dump(exclude={"sources"}) == closed.model_dump(exclude={"sources"})
    assert set(config.sources.values()) == {str(ROOT / "config.yaml")}
    assert config.persona_preset == "2026-02"


def test_nothing_reads_the_shipped_file_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    config = load_config({}, {})
    assert (config.persona_preset, config.sync) == ("2025-11", "none")


def test_the_shipped_file_leaves_max_requests_without_a_duration() -> None:
    config = load_config({"max_requests": ("--max-requests", "9")}, {}, str(ROOT / "config.yaml"))
    assert config.duration is None


def test_the_shipped_file_allows_another_preset() -> None:
    flags = {"workload_preset": ("--workload-preset", "2025-11")}
    config = load_config(flags, {}, str(ROOT / "config.yaml"))
    assert config.personas["coding"].context == (1024, 4096)


def test_a_command_default_is_weaker_than_anything_given(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", "num_users: 3\n")
    defaults = {"num_users": 10, "duration": 30.0}
    config = load_config({}, {}, path, defaults)
    assert (config.num_users, config.duration) == (3, 30)
    assert load_config({"max_requests": ("--max-requests", "5")}, {}, None, defaults).duration is None


def test_own_models_come_from_the_file(tmp_path: Path) -> None:
    mine = "{layers: 10, attention: mla, lora_rank: 100, rope_dim: 28, dtype: fp8}"
    text = f"model: mine\nmodels:\n  mine: {mine}\n"
    assert load_config({}, {}, write(tmp_path / "c.yaml", text)).kv.of(1) == 1280


def test_a_model_of_two_kinds_is_refused(tmp_path: Path) -> None:
    mine = "{layers: 4, kv_heads: 4, head_dim: 64, lora_rank: 3}"
    message = refused_file(tmp_path, f"models:\n  mine: {mine}\n")
    assert "lora_rank belongs to attention mla, not gqa; leave one of them out" in message


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("storage_tier: off\n", "storage_tier", "off"),
        ("storage_tier: on\n", "storage_tier", "on"),
        ("direct: off\n", "direct", "off"),
        ("verify: off\n", "verify", "off"),
        ("gpu_tier: off\n", "gpu_tier", "off"),
        ("storage_backend: null\n", "storage_backend", "null"),
        ("generation_mode: none\n", "generation_mode", "none"),
        ("io_size: 1M\n", "io_size", 1 << 20),
        ("cache_dir: /a\n", "cache_dir", ("/a",)),
        ("cache_dir: [/a, /b]\n", "cache_dir", ("/a", "/b")),
    ],
)
def test_words_that_yaml_reads_its_own_way_mean_what_they_say(
    tmp_path: Path, text: str, field: str, value: object
) -> None:
    assert getattr(load_config({}, {}, write(tmp_path / "c.yaml", text)), field) == value


WRONG_FILES = [
    ("num_user: 3\n", "c.yaml:1: num_user: unknown key; did you mean num_users?"),
    ("users: 3\n", "c.yaml:1: users: unknown key; did you mean num_users?"),
    ("sources: {}\n", "c.yaml:1: sources: unknown key; config.yaml beside kv-cache.py shows all keys"),
    ("\nnum_users: 0\n", "c.yaml:2: num_users 0: out of range; give 1 to 1,000,000"),
    ("num_users: many\n", "c.yaml:1: num_users many: not a whole number; give 1 to 1,000,000"),
    (
        "duration: .nan\n",
        "c.yaml:1: duration nan: not a finite number; give more than 0, at most 604,800 seconds",
    ),
    (
        "a: 1\n b: 2\n",
        "--config c.yaml:2: broken YAML (mapping values are not allowed here); correct that line",
    ),
    ("a: 1\na: 2\n", "--config c.yaml:2: broken YAML (key 'a' appears twice); correct that line"),
    ("- 1\n", "--config c.yaml: holds a list, not keys with values; write lines like num_users: 50"),
    (
        "qos:\n  interactiv: {share: 0.1}\n",
        "c.yaml:2: qos.interactiv: unknown key; did you mean interactive?",
    ),
    (
        "qos:\n  interactive:\n    share: 0.5\n",
        "c.yaml:1: qos: the shares of the three classes add up to 1.35; make them add up to 1",
    ),
    (
        "personas:\n  coding:\n    context: [9, 1]\n",
        "c.yaml:2: personas.coding: context [9, 1] runs backwards; put the smaller number first",
    ),
    ("personas:\n  new: {context: [1, 2]}\n", "c.yaml:2: personas.new.generate: missing; give it a value"),
    ("personas: 5\n", "c.yaml:1: personas 5: has no keys below it; indent them under it"),
    (
        "models:\n  m: {layers: 3, attention: gpa}\n",
        "c.yaml:2: models.m.attention gpa: unknown; did you mean gqa? choose mha, gqa or mla",
    ),
    ("num_users: true\n", "c.yaml:1: num_users true: not a whole number; give 1 to 1,000,000"),
    ("cpu_mem_gb: false\n", "c.yaml:1: cpu_mem_gb false: not a number; give 0 to 1,048,576 GiB"),
    ("max_requests: false\n", "c.yaml:1: max_requests false: not a whole number; give 1 to 1,000,000,000, or "
     "0 for the default"),
    ("rag:\n  top_k: true\n", "c.yaml:2: rag.top_k true: not a whole number; give 1 to 10,000"),
    ("personas:\n  chatbot: {context: [true, 9]}\n", "c.yaml:2: personas.chatbot.context: not a whole "
     "number; give 1 to 10,000,000"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line"), WRONG_FILES)
def test_a_wrong_file_is_named_by_line_key_and_remedy(tmp_path: Path, text: str, line: str) -> None:
    assert refused_file(tmp_path, text) == line


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert refused(config_file="/nope/c.yaml") == (
        "--config /nope/c.yaml: cannot be read (No such file or directory); name a readable YAML file"
    )
    assert "Is a directory" in refused(config_file=str(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "x: 2025-13-45\n",
        "[" * 3000,
        "x: !!python/object:os.system {}\n",
        "\tx: 1\n",
        "x: &a [*a]\n",
        "? [1]\n: 2\n",
    ],
)
def test_strange_yaml_is_refused_without_a_traceback(tmp_path: Path, text: str) -> None:
    refused_file(tmp_path, text)


@pytest.mark.parametrize("text", [f"x: !{'t' * 5000} 1\n", f"x: *{'t' * 5000}\n"])
def test_a_long_name_in_broken_yaml_is_shortened(tmp_path: Path, text: str) -> None:
    said = refused_file(tmp_path, text)
    assert "broken YAML" in said
    assert "ttt..." in said
    assert len(said) < 400


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe\x00\xd8\x00")
    message = refused(config_file=str(tmp_path / "c.yaml"))
    assert "broken YAML" in message
    assert message.endswith("; correct the file")


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert load_config({}, {}, write(tmp_path / "c.yaml", "# nothing\n")) == Config()


def test_a_preset_flag_over_personas_in_the_file_is_a_contradiction(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", "personas:\n  coding: {weight: 2}\n")
    line = refused(flags={"workload_preset": ("--workload-preset", "2026-02")}, config_file=path)
    assert line == f"--workload-preset 2026-02: contradicts {path}:1: personas; leave one of them out"


def test_the_echo_has_every_field_and_no_other() -> None:
    shown = load_config({"num_users": ("--users", "5")}).model_dump(mode="json")
    assert set(shown) == set(Config.model_fields)
    assert shown["sources"] == {"num_users": "--users"}
