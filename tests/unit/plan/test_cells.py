"""What a calibration may write is bounded, and the bound is said with a remedy that there is."""

import re

import pytest

from kvspill.cli.calibrate import FLAGS
from kvspill.config.fields import flag_of
from kvspill.errors import KvspillError
from kvspill.plan.cells import Bench, Budget
from kvspill.records import MIB
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.profiles import NULL
from kvspill.world import World, run_virtual


def test_entries_beyond_what_may_be_written_are_refused_with_flags_of_the_command() -> None:
    async def main(world: World) -> None:
        bench = Bench(world, ModelledBackend("modelled", NULL, world.now_ns), Budget(3 * MIB))
        await bench.store(MIB, 2)
        await bench.store(MIB, 2)

    with pytest.raises(KvspillError, match=r"entries of 1 MiB need more than the 1 MiB that") as caught:
        run_virtual(main, seed=0)
    assert set(re.findall(r"--[a-z-]+", str(caught.value))) <= {*map(flag_of, FLAGS), "--quick"}
