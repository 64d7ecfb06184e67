"""The settings of the storage tier's I/O: how it reaches the kernel, who moves what, what is checked."""

from typing import Annotated, Literal

from pydantic import Field

from kvspill.config.effects import DIRECT_ON, NO_DRAM_TIER
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
    rare,
)
from kvspill.plugins import Kind


class IoFields(Group):
    """The fields of Config that say how the storage tier is driven."""

    layout: Literal["files", "flat", "tree", "slots", "buckets"] = rare(
        "files",
        "files: a file per entry, in 256 directories; flat: in one directory; tree: under two levels; slots: "
        "places of one block in one file; buckets: files of many blocks",
        group="io",
    )
    load_jobs: Literal["piece", "block", "request"] = rare(
        "piece",
        "what a thread takes at a time; piece: --io-size bytes, so that up to 4 threads share an entry; "
        "block: a whole entry; request: all blocks of a request, one after another",
        group="io",
    )
    store_jobs: Literal["piece", "block", "request"] = rare(
        "piece", "the same for what a request stores", group="io"
    )
    preallocate: Annotated[Literal["on", "off"], OnOff] = rare(
        "on", "reserve a file's room before it is written", group="io"
    )
    rename: Annotated[Literal["on", "off"], OnOff] = rare(
        "on", "write a file under a temporary name and rename it when it is whole", group="io"
    )
    page_cache: Literal["drop", "keep"] = rare(
        "drop",
        "pages that buffered I/O leaves in memory; drop: sync and drop them, so that the device is measured; "
        "keep: leave them to the kernel, as engines do",
        group="io",
        no_effect=(DIRECT_ON,),
    )
    write_threads: Annotated[int, Field(ge=0, le=1024)] = rare(
        0, "separate threads for writes; 0: reads and writes share --io-threads", group="io"
    )
    io_engine: Literal["threads", "io_uring"] = rare("threads", "how I/O reaches the kernel", group="io")
    io_size: Annotated[Size, Field(ge=4096, le=IO_SIZE_MAX, multiple_of=4096)] = rare(
        DEFAULT_IO_SIZE, "bytes per system call, such as 4MiB, 1M or 65536", group="io", metavar="SIZE"
    )
    io_threads: Annotated[int, Field(ge=1, le=1024)] = opt(32, "I/O threads", group="io")
    dram_threads: Annotated[int, Field(ge=1, le=1024)] | None = rare(
        None,
        "threads that copy in the DRAM tier (default: as many as this process has processors)",
        group="io",
        no_effect=(NO_DRAM_TIER,),
    )
    sync: Literal["none", "data"] = rare("none", "data: fdatasync every entry", group="io")
    direct: Annotated[Literal["auto", "on", "off"], OnOff] = opt(
        "auto", "O_DIRECT; auto falls back to buffered and says so", group="io"
    )
    verify: Annotated[Literal["off", "stamp", "full"], OnOff] = rare(
        "stamp", "what is checked of every block that is read", group="io"
    )
    storage_backend: Annotated[PluginName, NullWord] = rare(
        "files",
        "what holds the entries of the storage tier; null is infinitely fast",
        group="io",
        plugin=Kind.BACKEND,
    )
    device_profile: PathText | None = opt(
        None, "speeds of modelled tiers: a name or a YAML file", group="io", metavar="NAME|FILE"
    )
