"""The command in a result says lists as their flags take them, and never shows or invents a secret."""

import shlex
from pathlib import Path

from pydantic import SecretStr

from kvspill.cli.options import config_parser, parse_config
from kvspill.config import Config
from kvspill.records import MIB
from kvspill.result.command import command_of
from kvspill.run.settle import settled


def test_a_list_of_words_is_one_flag_and_directories_are_one_each() -> None:
    config = Config(
        enable_autoscaling=True,
        autoscaler_mode="slo",
        slo_classes=("interactive", "responsive"),
        cache_dir=("/a", "/b c"),
    )
    command = command_of(config, simulated=False)
    assert " --slo-classes interactive,responsive" in command
    assert command.endswith(" --cache-dir /a --cache-dir '/b c'")


def test_a_secret_is_left_out_instead_of_masked() -> None:
    config = Config(plugins={"shelf": {"threads": 16, "token": SecretStr("x")}})
    assert command_of(config, simulated=False) == "kvspill run --shelf-threads 16"


def test_options_of_plug_ins_are_their_flags() -> None:
    config = Config(plugins={"s3": {"allow-http": True, "endpoint": "-a b", "region": "x"}}, seed=3)
    command = command_of(config, simulated=False)
    assert command == "kvspill run --seed 3 --s3-allow-http true '--s3-endpoint=-a b' --s3-region x"
    words = shlex.split(command)[2:]
    assert parse_config(config_parser("kvspill run", "", ""), words, environ={}).plugins == config.plugins


def test_a_launcher_starts_the_command_and_not_the_settings_before_it() -> None:
    config = Config.model_validate({"qos": {"batch": {"p95_ms": 77.0}}})
    command = command_of(config, simulated=True, launcher=("mpirun", "-n", "2"))
    assert command.startswith("printf %s ")
    assert " | mpirun -n 2 kvspill simulate --config " in command


def parsed(words: list[str]) -> Config:
    return settled(parse_config(config_parser("kvspill run", "", ""), words, environ={}), simulated=True)


def again(config: Config) -> Config:
    return parsed(shlex.split(command_of(config, simulated=True))[2:])


def test_a_time_per_token_that_a_file_gave_is_taken_from_there_again(tmp_path: Path) -> None:
    file = tmp_path / "engine.json"
    file.write_text('{"tokens_per_second": 500.0, "elapsed_time": 9}')
    config = parsed(["--num-users", "2", "--calibrate-from", str(file)])
    assert config.decode_ms_per_token == 4.0
    assert again(config).decode_ms_per_token == 4.0


def test_a_call_size_that_was_given_beside_an_engine_is_given_again() -> None:
    words = ["--engine", "lmcache", "--trace", "mooncake:sample"]
    sizes = [parsed([*words, *more]).io_size for more in ([], ["--io-size", "32MiB"])]
    assert sizes == [64 * MIB, 32 * MIB]
    for more, size in zip(([], ["--io-size", "32MiB"]), sizes, strict=True):
        assert again(parsed([*words, *more])).io_size == size
