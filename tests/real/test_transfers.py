"""Transfers that fail half-way: short ones, files that may not grow, a device that fails its reads."""

import asyncio
import os
import resource
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from kvspill.storage import fastio
from kvspill.storage.base import Backend, ObjectRef, WriteItem
from kvspill.storage.fastio import Status
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from real.rig import file_system, left_over, start, wait_for_entries

pytestmark = pytest.mark.real

MIB = 1 << 20
OPTIONS = FilesOptions(io_size=65536, io_threads=2)
REF = ObjectRef("k", 1, MIB)


def on_backend(root: Path, work: Any) -> Any:
    """Run work(backend) on a files backend under root."""

    async def main() -> Any:
        backend = FilesBackend([root], OPTIONS)
        await backend.prepare(lambda *_: None)
        try:
            return await work(backend)
        finally:
            await backend.close()

    return asyncio.run(main())


def give_up_at(piece_number: int, real: Any) -> Any:
    """A kernel that moves less than it was asked to, twice in a row, at one piece."""

    def transfer(
        fd: Any, write: Any, memory: Any, span: Any, verify: str, base: Any, _max_pieces: int = 0
    ) -> Any:
        while True:
            answer = real(fd, write, memory, span, verify, base, 1)
            if answer[0] != Status.MORE:
                return answer
            if span.log[0, 0] > piece_number:
                return Status.SHORT, piece_number, 4096

    return transfer


@pytest.mark.parametrize("verb", ["read", "write"])
def test_a_short_transfer_is_an_error_of_its_kind_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    async def work(backend: Backend) -> Any:
        if verb == "read":
            assert (await backend.write([WriteItem(REF)]))[0].error is None
        monkeypatch.setattr(fastio, "transfer", give_up_at(3, fastio.transfer))
        done = await (backend.read([REF]) if verb == "read" else backend.write([WriteItem(REF)]))
        return done[0], list(tmp_path.glob("kvspill-*/??/*"))

    done, files = on_backend(tmp_path, work)
    assert done.error == f"short_{verb}"
    assert "4096 of 65536 bytes" in done.detail
    assert len(files) == (1 if verb == "read" else 0)


def test_reads_from_a_failing_device_are_eio(tmp_path: Path) -> None:
    with file_system(tmp_path, "ext4", 64 * MIB) as root:
        refs = [ObjectRef(f"k{number}", 1, MIB) for number in range(40)]

        async def work(backend: Backend) -> Any:
            for ref in refs:
                assert (await backend.write([WriteItem(ref)]))[0].error is None
            os.truncate(tmp_path / "image", 24 * MIB)
            device = subprocess.run(["findmnt", "-no", "SOURCE", str(root)], capture_output=True, text=True)
            subprocess.run(["losetup", "-c", device.stdout.strip()], check=True)
            return [(await backend.read([ref]))[0].error for ref in refs]

        errors = on_backend(root, work)
    assert errors.count("EIO") > 5
    assert set(errors) <= {None, "EIO"}


def test_files_that_may_not_grow_are_efbig_and_cost_requests(tmp_path: Path) -> None:
    run = start(
        tmp_path, tmp_path, "--duration", "1.5", "--storage-capacity-gb", "0.06", "--max-errors", "1000000"
    )
    wait_for_entries(tmp_path, 5)
    limits = (256 * 1024, resource.RLIM_INFINITY)
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, limits)
    time.sleep(0.7)
    # The result is longer than the limit, so that it is lifted before the result is written.
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    finished = run.finish()
    assert finished.errors["write EFBIG"] > 0
    assert finished.result["honesty"]["requests"]["failed"] > 0
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("layout", ["flat", "tree", "slots", "buckets"])
def test_killed_runs_of_other_layouts_are_cleaned_too(tmp_path: Path, layout: str) -> None:
    blocks = ("--io-model", "prefix", "--block-tokens", "8", "--layout", layout)
    run = start(tmp_path / "out", tmp_path, "--duration", "30", "--storage-capacity-gb", "0.06", *blocks)
    wait_for_entries(tmp_path, 1)
    run.process.kill()
    run.process.communicate()
    next_one = start(tmp_path / "out", tmp_path, "--max-requests", "1", "--storage-capacity-gb", "0.06")
    assert next_one.finish().code == 0
    assert left_over(tmp_path) == []
