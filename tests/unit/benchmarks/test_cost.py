"""Processor time of another process, read from a made-up /proc."""

from pathlib import Path

import pytest

from lib.cost import sample


def fake(tmp_path: Path, device: int, state: str = "S") -> Path:
    for thread, ran_ns in ((7, 1_000), (8, 500)):
        task = tmp_path / "7" / "task" / str(thread)
        task.mkdir(parents=True)
        (task / "schedstat").write_text(f"{ran_ns} 99 3\n")
    (tmp_path / "7" / "stat").write_text(f"7 (fio (1)) {state} 1 7 7")
    lines = ["rchar: 30", "wchar: 12", f"read_bytes: {device}", "write_bytes: 0"]
    (tmp_path / "7" / "io").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_all_threads_of_the_process_are_counted(tmp_path: Path) -> None:
    seen = sample(7, fake(tmp_path, device=4096))
    assert seen is not None
    assert (seen.cpu_ns, seen.threads, seen.nbytes) == (1_500, 2, 4096)


@pytest.mark.parametrize("device", [0, 16])
def test_where_no_device_moved_the_data_the_bytes_of_the_calls_count(tmp_path: Path, device: int) -> None:
    """A device may have moved the pages of the program itself."""
    seen = sample(7, fake(tmp_path, device))
    assert seen is not None
    assert seen.nbytes == 42


def test_a_process_that_has_ended_and_waits_to_be_asked_gives_no_sample(
    tmp_path: Path,
) -> None:
    assert sample(7, fake(tmp_path, device=4096, state="Z")) is None


def test_a_process_that_is_gone_gives_no_sample(tmp_path: Path) -> None:
    assert sample(7, tmp_path) is None
