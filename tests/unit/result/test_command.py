"""The command in a result says lists as their flags take them, and never shows or invents a secret."""

from pydantic import SecretStr

from kvspill.config import Config
from kvspill.result.command import command_of


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
    assert command_of(config, simulated=False) == (
        """kvspill run --config /dev/stdin <<< '{"plugins": {"shelf": {"threads": 16}}}'"""
    )
