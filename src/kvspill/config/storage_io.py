"""The settings of the storage tier's I/O: how it reaches the kernel, who moves what, what is checked."""

from typing import Annotated, Literal

from pydantic import Field

from kvspill.config.effects import DIRECT_ON
from kvspill.config.fields import (
    DEFAULT_IO_SIZE,
    IO_SIZE_MAX,
    Group,
    NullWord,
    OnOff,
    PathText,
    PluginName,
    Size,
    opt,
)
from kvspill.plugins import Kind


class IoFields(Group):
    """The fields of Config that say how the storage tier is driven."""

    layout: Literal["files", "flat", "tree", "slots", "buckets"] = opt(
        "files",
        "a file per entry in 256 directories, the same in one directory or under two levels of them, slots "
        "of a block in one file, or files of many blocks",
        group="io",
        advanced=True,
    )
    load_jobs: Literal["piece", "block", "request"] = opt(
        "piece",
        "what a thread takes up at a time: a piece of --io-size, so that up to 4 share an entry, a whole "
        "entry or block, or all blocks that a request loads, one after another",
        group="io",
        advanced=True,
    )
    store_jobs: Literal["piece", "block", "request"] = opt(
        "piece", "the same for what a request stores", group="io", advanced=True
    )
    preallocate: Annotated[Literal["on", "off"], OnOff] = opt(
        "on", "reserve a file's room before it is written", group="io", advanced=True
    )
    rename: Annotated[Literal["on", "off"], OnOff] = opt(
        "on", "write a file under a temporary name and rename it when it is whole", group="io", advanced=True
    )
    page_cache: Literal["drop", "keep"] = opt(
        "drop",
        "what becomes of the pages that buffered I/O leaves in memory: drop syncs and drops them, so that "
        "the device is measured; keep leaves them to the kernel, as engines do",
        group="io",
        no_effect=(DIRECT_ON,),
        advanced=True,
    )
    write_threads: Annotated[int, Field(ge=0, le=1024)] = opt(
        0,
        "threads that only write, beside --io-threads; 0: reads and writes share those",
        group="io",
        advanced=True,
    )
    io_engine: Literal["threads", "io_uring"] = opt(
        "threads", "how I/O reaches the kernel", group="io", advanced=True
    )
    io_size: Annotated[Size, Field(ge=4096, le=IO_SIZE_MAX, multiple_of=4096)] = opt(
        DEFAULT_IO_SIZE,
        "bytes per system call, such as 4MiB, 1M or 65536",
        group="io",
        metavar="SIZE",
        advanced=True,
    )
    io_threads: Annotated[int, Field(ge=1, le=1024)] = opt(32, "I/O threads", group="io")
    dram_threads: Annotated[int, Field(ge=1, le=1024)] | None = opt(
        None,
        "threads that copy in the DRAM tier (default: as many as this process has processors)",
        group="io",
        advanced=True,
    )
    sync: Literal["none", "data"] = opt("none", "data: fdatasync every entry", group="io", advanced=True)
    direct: Annotated[Literal["auto", "on", "off"], OnOff] = opt(
        "auto", "O_DIRECT; auto falls back to buffered and says so", group="io"
    )
    verify: Annotated[Literal["off", "stamp", "full"], OnOff] = opt(
        "stamp", "what is checked of every block that is read", group="io", advanced=True
    )
    storage_backend: Annotated[PluginName, NullWord] = opt(
        "files",
        "what stands behind the storage tier; null is infinitely fast",
        group="io",
        advanced=True,
        plugin=Kind.BACKEND,
    )
    device_profile: PathText | None = opt(
        None, "speeds of modelled tiers: a name or a YAML file", group="io", metavar="NAME|FILE"
    )
