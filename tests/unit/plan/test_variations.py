"""Variations of a question: each changes one figure and nothing else."""

import pytest

from kvspill.config import Config
from kvspill.plan.variations import off_by_some, twice
from kvspill.records import Tier
from kvspill.storage.profiles import PRESETS

CONFIG = Config(model="tiny-1b", num_users=4, duration=60, cpu_mem_gb=8, slo_target_ms=500)
PROFILE = PRESETS["nvme-gen4"]


def test_each_figure_is_tried_lower_and_higher() -> None:
    found = {(one.figure, one.factor): one for one in off_by_some(CONFIG, PROFILE)}
    slower = found["storage read speed", 0.9].profile[Tier.STORAGE]
    assert slower.read_gib_per_sec == pytest.approx(0.9 * 6.5)
    assert slower.write_gib_per_sec == 4.5
    assert found["storage latency", 1.1].profile[Tier.STORAGE].read_latency_us == pytest.approx(99)
    assert found["DRAM", 1.1].config.cpu_mem_gb == pytest.approx(8.8)
    assert found["latency target", 0.9].config.slo_target_ms == pytest.approx(450)
    assert found["time per generated token", 1.1].config.generation_ms_per_token == pytest.approx(33)
    longer, usual = found["context length", 1.1].config.personas, CONFIG.personas
    assert longer["coding"].context[1] == int(1.1 * usual["coding"].context[1])
    assert longer["coding"].think == usual["coding"].think
    assert found["think time", 1.1].config.personas["coding"].think[1] == pytest.approx(
        1.1 * usual["coding"].think[1]
    )


def test_figures_that_do_not_count_are_left_out() -> None:
    config = Config(trace="mooncake:sample", duration=60, cpu_mem_gb=0, generation_mode="none")
    names = {one.figure for one in off_by_some(config, PRESETS["null"])}
    assert names == {"storage read speed", "storage write speed", "latency target"}


def test_twice_the_speed_leaves_memory_as_it_is() -> None:
    speed, dram = twice(CONFIG, PROFILE)
    assert speed.profile[Tier.STORAGE].read_gib_per_sec == 13.0
    assert speed.profile[Tier.CPU] == PROFILE[Tier.CPU]
    assert (dram.config.cpu_mem_gb, dram.profile) == (16.0, PROFILE)
