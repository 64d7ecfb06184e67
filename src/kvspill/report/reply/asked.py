"""What `kvspill can` was asked, in words: the targets of the classes, and what was assumed of the users."""

from kvspill.config import Config
from kvspill.records import QoS
from kvspill.result.classes import LATENCIES
from kvspill.run.asking import replays
from kvspill.texts import counted, target_time


def targets_ms(config: Config) -> dict[str, float]:
    """The target of each class that is judged."""
    own = {qos.name.lower(): getattr(config.qos, qos.name.lower()).p95_ms for qos in QoS}
    return {name: config.slo_target_ms or own[name] for name in config.slo_classes}


def target_text(config: Config) -> str:
    """The target in words."""
    limits = targets_ms(config)
    if config.slo_target_ms is not None:
        each = f"{target_time(config.slo_target_ms)} for {', '.join(limits)}"
    else:
        each = ", ".join(f"{name} {target_time(limit)}" for name, limit in limits.items())
        each += "; --slo-target-ms sets one for all"
    return f"p{config.slo_percentile:g} of {LATENCIES[config.slo_latency]}: {each}"


def settings_text(config: Config, flag: str = "--cpu-mem-gb adds one") -> str:
    """What was assumed of the users and the tiers; the flag is that of the command for DRAM."""
    if config.generation_ms_per_token:
        pace = f"{config.generation_ms_per_token:g} ms per token"
    else:
        pace = "no time for generation"
    dram = f"{config.cpu_mem_gb:g} GiB of DRAM" if config.cpu_mem_gb else f"no DRAM tier ({flag})"
    kind = "" if config.gpu_tier == "real" else " (modelled)"
    gpu = f", {config.gpu_mem_gb:g} GiB of GPU memory{kind}" if config.gpu_bytes else ""
    if config.storage_capacity_gb:
        gpu += f", {config.storage_capacity_gb:g} GiB of storage"
    who = "arrivals as recorded" if replays(config) else f"closed arrivals, {_servers(config)}"
    return f"{who}, {pace}, {dram}{gpu}, I/O model {config.io_model}, seed {config.seed}"


def _servers(config: Config) -> str:
    """The servers of the users, where --servers does not give each of them one."""
    servers = config.servers
    each = servers is None or servers >= config.num_users
    return "one server per user" if each else counted(servers or 0, "server")
