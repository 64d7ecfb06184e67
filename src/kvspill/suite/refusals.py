"""Every refusal before the first word: what a run would stumble over later is tried beforehand."""

import importlib.util
import stat
from pathlib import Path

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.measure.oplog import requests_path
from kvspill.outputs import check_place
from kvspill.report.tables import check_table
from kvspill.run.build import build_workload, tier_limits
from kvspill.run.preflight import check_output
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan
from kvspill.workload.registry import recording
from kvspill.workload.traces.files import open_bytes
from kvspill.world import World


def refuse_early(config: Config, *, simulated: bool) -> None:
    """Raise a UsageError where this run cannot be done; leaves nothing behind and prints nothing."""
    plan = make_plan(config, simulated, Progress(quiet=True))
    check_output(config.output)
    if config.log_ops is not None:
        _check_log(Path(config.log_ops))
    if config.xlsx_output is not None:
        check_table(config.xlsx_output)
        check_place(config.xlsx_output, f"--xlsx-output {config.xlsx_output}")
    if not _read_only_once(config):
        build_workload(config, World(config.seed), tier_limits(config, plan.storage_bytes))


def _check_log(path: Path) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError(f"--log-ops {path}: needs pyarrow, not installed here; pip install 'kvspill[log]'")
    check_place(path, f"--log-ops {path}")
    if path.suffix != ".parquet":
        raise UsageError(f"--log-ops {path}: rows are written as Parquet; name a file that ends in .parquet")
    requests = requests_path(path)
    check_place(requests, f"--log-ops {path}: its {requests.name}")


def _read_only_once(config: Config) -> bool:
    """Whether the recording comes through a pipe, from which it can be taken but once."""
    replayed = recording(config)
    if replayed is None:
        return False
    try:
        mode = replayed.path.stat().st_mode
    except OSError:
        # Says why it cannot be read.
        open_bytes(replayed.path, replayed.flag).close()
        return True
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
