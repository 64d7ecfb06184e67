"""Warnings of the control groups around this process: what they allow it of a device and of processors."""

from kvspill.result.caution import Kind
from kvspill.result.metrics import Area

IO_LIMITED = Kind(
    "io_limited",
    "A control group limits what this process may move: {limits}. A figure that comes near to that is of the "
    "limit, not of the device.",
    "Lift the limit (io.max, blkio.throttle) to measure the device, or state it with the result.",
    touches=(Area.LOAD, Area.LATENCY, Area.STORAGE),
    means="a control group limited its I/O, so a figure may be of that limit and not of the drive",
)
CPU_LIMITED = Kind(
    "cpu_limited",
    "A control group gives this process the time of {processors:g} processors of the {usable} that it sees.",
    "Lift the limit (cpu.max, cpu.cfs_quota_us), or state it with the result.",
    touches=(Area.LOAD, Area.LATENCY),
    means="a control group limited its processors, which hides as latency",
)
