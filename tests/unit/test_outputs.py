"""Results go where the user points, and whatever stands there already survives."""

import errno
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kvspill import outputs
from kvspill.errors import UsageError
from kvspill.outputs import beside, write_new, write_whole
from kvspill.refusals import check_place, refuse_clashes
from kvspill.report.tables import write_csv, write_xlsx
from kvspill.result.result import write_result
from unit.result import sample


def test_a_link_stays_a_link_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "real.json", tmp_path / "latest.json"
    target.write_text("old")
    link.symlink_to("far/real.json")
    write_result(link, sample.built())
    assert link.is_symlink()
    assert json.loads(target.read_text()) == sample.result()
    assert [path.name for path in target.parent.iterdir()] == ["real.json"]


def test_a_link_that_leads_nowhere_yet_gets_its_file(tmp_path: Path) -> None:
    link = tmp_path / "latest.json"
    link.symlink_to("new.json")
    check_place(link, "--output latest.json")
    write_whole(link, "text")
    assert link.is_symlink()
    assert (tmp_path / "new.json").read_text() == "text"


def test_an_open_pipe_is_written_through() -> None:
    """As a shell hands one over in `--output >(gzip)`."""
    reader, writer = os.pipe()
    pipe = Path(f"/dev/fd/{writer}")
    read: list[bytes] = []

    def drain() -> None:
        with open(reader, "rb") as stream:
            read.append(stream.read())

    draining = threading.Thread(target=drain)
    draining.start()
    check_place(pipe, f"--output {pipe}")
    write_result(pipe, sample.built())
    os.close(writer)
    draining.join(10)
    assert [json.loads(text) for text in read] == [sample.result()]


def test_a_named_pipe_is_refused_and_never_opened(tmp_path: Path) -> None:
    """Opening one waits for a reader, and no signal of ours ends that."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("pipe")
    for path in (pipe, link):
        with pytest.raises(UsageError, match=r"^--output ff: .*a named pipe.*; name a file"):
            check_place(path, "--output ff")
        with pytest.raises(UsageError, match=r"^-o ff: .*a named pipe.*; name a file"):
            refuse_clashes({"--csv none": None, "--csv x": tmp_path / "x", "-o ff": path}, [])


def test_a_character_device_stays_one_whatever_is_written(tmp_path: Path) -> None:
    # Reached by a link, so that a mistake here replaces the link and not the machine's device.
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    check_place(null, "--output null")
    write_result(null, sample.built())
    write_csv(null, [{"a": 1}])
    write_xlsx(null, [{"a": 1}])
    assert null.is_symlink()
    assert stat.S_ISCHR(null.stat().st_mode)
    assert list(tmp_path.iterdir()) == [null]


SCRIPT = """
import sys
from kvspill.outputs import write_whole
print("before")
write_whole("/dev/stdout", "result\\n")
print("after")
"""


def test_the_standard_output_is_written_in_its_turn_to_a_pipe_and_to_a_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert piped.stdout == "before\nresult\nafter\n"
    with open(tmp_path / "out", "w") as file:
        subprocess.run(command, stdout=file, check=True)
    assert (tmp_path / "out").read_text() == "before\nresult\nafter\n"


def test_a_disk_is_refused_and_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(b"somebody's data")
    real = Path.stat

    def as_disk(self: Path, **options: bool) -> os.stat_result:
        found = real(self, **options)
        return os.stat_result((stat.S_IFBLK | 0o660, *found[1:])) if self == disk else found

    monkeypatch.setattr(Path, "stat", as_disk)
    with pytest.raises(UsageError, match=r"^--output disk: .*a disk or a socket"):
        check_place(disk, "--output disk")
    with pytest.raises(OSError, match="a disk or a socket"):
        write_whole(disk, "x")
    assert disk.read_bytes() == b"somebody's data"


@pytest.mark.parametrize("place", ["/proc/x.json", "/sys/x.json", "/proc/new/x.json"])
def test_a_file_system_that_takes_no_files_is_refused_beforehand_even_for_root(place: str) -> None:
    with pytest.raises(UsageError, match=rf"^--output {place}: .* name a file in a writable directory$"):
        check_place(place, f"--output {place}")


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    check_place(tmp_path / "a" / "b" / "c.json", "--output c.json")
    assert list(tmp_path.iterdir()) == []


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    path.chmod(0o640)
    write_whole(path, "new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even one that stands under the temporary name, which nobody can foresee."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr("kvspill.outputs.secrets.token_hex", lambda _bytes: "0")
    (tmp_path / ".kvspill-0.tmp").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "result.json", "text")
    assert victim.read_text() == "precious"


def test_temporary_names_cannot_be_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    real = os.replace

    def noted(source: Path, target: Path) -> None:
        seen.append(source.name)
        real(source, target)

    monkeypatch.setattr(os, "replace", noted)
    for _ in range(2):
        write_whole(tmp_path / "result.json", "text")
    assert len(set(seen)) == 2
    assert not any(str(os.getpid()) in name for name in seen)


def test_a_name_as_long_as_the_file_system_allows_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write_whole(path, "text")
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("letter", ["n", "\N{LATIN SMALL LETTER U WITH DIAERESIS}"])
def test_a_file_beside_another_is_named_after_it_and_never_too_long(letter: str) -> None:
    assert beside(Path("in/plan.json"), ".part") == Path("in/plan.json.part")
    most = 250 // len(letter.encode())
    assert beside(Path(letter * most), ".part").name == f"{letter * most}.part"
    longer = [beside(Path("in") / (letter * count), ".part") for count in (most + 1, most + 2)]
    assert longer[0] != longer[1]
    for path in longer:
        assert path.parent == Path("in")
        assert path.suffix == ".part"
        assert len(os.fsencode(path.name)) <= 255


def names(folder: Path) -> Iterator[Path]:
    return (folder / f"result-{number}.json" for number in range(100))


def test_a_new_file_never_takes_the_place_of_another(tmp_path: Path) -> None:
    (tmp_path / "result-0.json").write_text("somebody's")
    assert write_new(names(tmp_path), "ours") == tmp_path / "result-1.json"
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["ours", "somebody's"]


@pytest.mark.parametrize("linkless", [False, True])
def test_many_at_once_get_a_name_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linkless: bool
) -> None:
    def no_links(*_args: object, **_options: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    if linkless:
        monkeypatch.setattr(os, "link", no_links)
    with ThreadPoolExecutor(12) as pool:
        written = list(pool.map(lambda number: write_new(names(tmp_path), str(number)), range(24)))
    assert len(set(written)) == 24
    assert sorted(int(path.read_text()) for path in tmp_path.iterdir()) == list(range(24))


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk whose first sync hangs until the event is set."""
    back, real, calls = threading.Event(), os.fsync, iter([True])

    def fsync(fd: int) -> None:
        if next(calls, False):
            back.wait()
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(outputs, "WRITING_SECONDS_MAX", 0.01)
    yield back
    back.set()


def test_a_write_that_was_given_up_replaces_nothing_later(
    tmp_path: Path, hung: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "r.json"
    with pytest.raises(TimeoutError, match=r"nothing came back within 0\.01"):
        write_whole(file, "first")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TimeoutError, match="its disk hangs"):
        write_whole(file, "at once")
    (writer,) = [thread for thread in threading.enumerate() if thread.name == "kvspill-within"]
    hung.set()
    writer.join()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(outputs, "WRITING_SECONDS_MAX", 20)
    write_whole(file, "second")
    assert file.read_text() == "second"


@pytest.mark.usefixtures("hung")
def test_a_new_name_is_not_taken_by_a_write_that_was_given_up(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        write_new([tmp_path / "1.json", tmp_path / "2.json"], "text")
    assert list(tmp_path.iterdir()) == []
