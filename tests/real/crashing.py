"""Power losses: copies a device's image at random moments of a run, mounts the copies and cleans them.

`python tests/real/crashing.py 50` takes fifty images; `--seed N` chooses other moments. Needs root.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from real.killing import fingerprint, plant_foreign
from real.rig import file_system, run_dirs, start, wait_until

IMAGE_BYTES = 48 << 20
RUN_SECONDS = 2.5


@dataclass(slots=True)
class Tally:
    """What many crashes came to."""

    images: int = 0
    with_a_run: int = 0
    """Images in which a run's directory had reached the device."""
    offered: int = 0
    """Those that had lost their marker, so that only `clean --yes` removes them."""
    left: int = 0
    """Directories of ours that were still there afterwards."""
    foreign_touched: int = 0


@contextmanager
def mounted(image: Path) -> Iterator[Path]:
    point = image.with_suffix(".mnt")
    point.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True, capture_output=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", str(point)], check=True, capture_output=True)


def clean(directory: Path, *flags: str) -> str:
    command = [sys.executable, "-m", "kvspill.cli.main", "clean", *flags, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    # What plant_foreign made looks like a run's, and stays though all was to go.
    assert done.returncode == (1 if "--yes" in flags else 0), done.stderr
    return done.stdout


def images(where: Path, count: int, rng: random.Random) -> Iterator[Path]:
    """A device's content at so many moments of runs on it, as a power loss would leave it."""
    with file_system(where / "device", "ext4", IMAGE_BYTES) as cache_dir:
        plant_foreign(cache_dir)
        subprocess.run(["sync"], check=True)
        foreign = set(run_dirs(cache_dir))
        taken = 0
        while taken < count:
            run = start(
                where / "out", cache_dir, "--duration", "1.5", "--storage-capacity-gb", "0.012", "--quiet"
            )
            wait_until(lambda: set(run_dirs(cache_dir)) - foreign)
            for at in sorted(rng.uniform(0, RUN_SECONDS) for _ in range(min(4, count - taken))):
                time.sleep(max(0.0, at / 4))
                # Held for the moment of the copy, so that it is of one moment.
                run.send(signal.SIGSTOP)
                copy = where / f"image{taken}"
                shutil.copyfile(where / "device" / "image", copy)
                run.send(signal.SIGCONT)
                taken += 1
                yield copy
                copy.unlink()
            run.finish()


def crash(count: int, seed: int, where: Path) -> Tally:
    """Take images, clean each, and count what is left of ours and touched of others'."""
    tally = Tally()
    for image in images(where, count, random.Random(seed)):
        tally.images += 1
        with mounted(image) as root:
            foreign = {path: text for path, text in fingerprint(root).items() if _is_foreign(path, root)}
            ours = [name for name in run_dirs(root) if _is_ours(name)]
            tally.with_a_run += bool(ours)
            clean(root)
            tally.offered += sum(_is_ours(name) for name in run_dirs(root))
            clean(root, "--yes")
            tally.left += sum(_is_ours(name) for name in run_dirs(root))
            after = fingerprint(root)
            tally.foreign_touched += any(after.get(path) != text for path, text in foreign.items())
    return tally


def _is_ours(name: str) -> bool:
    """Those of `plant_foreign` have the numbers of no process of ours."""
    return name not in ("kvspill-1-0123abcd", "kvspill-2-0123abcd", "kvspill-results", "kvspill-notes.txt")


def _is_foreign(path: Path, root: Path) -> bool:
    top = path.relative_to(root).parts[0]
    return not (top.startswith("kvspill-") and _is_ours(top))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        tally = crash(options.count, options.seed, Path(directory))
    print(tally)
    return 1 if tally.left or tally.foreign_touched else 0


if __name__ == "__main__":
    sys.exit(main())
