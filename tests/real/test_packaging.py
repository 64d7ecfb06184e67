"""Wheel and source distribution: they build, with and without a compiler, hold everything, and work alone."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
NO_COMPILER: dict[str, Any] = {"CC": "/bin/false", "CXX": "/bin/false"}
HELPER = "kvspill/storage/_fastio."


def call(command: list[str], cwd: Path, **environ: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env={**kept, **environ}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def tracked(under: str) -> list[str]:
    return call(["git", "ls-files", under], ROOT).splitlines()


def copy_tree(target: Path) -> Path:
    """The sources that are tracked or new, without what a build left there before."""
    names = call(["git", "ls-files", "--cached", "--others", "--exclude-standard"], ROOT).splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def build_wheel(source: Path, target: Path, **environ: str) -> Path:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    call([*pip, "--wheel-dir", str(target), str(source)], source, **environ)
    (wheel,) = target.glob("kvspill-*.whl")
    return wheel


def build_sdist(source: Path, target: Path) -> Path:
    target.mkdir()
    script = f"from setuptools.build_meta import build_sdist; print(build_sdist({str(target)!r}))"
    call([sys.executable, "-c", script], source)
    (sdist,) = target.glob("kvspill-*.tar.gz")
    return sdist


def files_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.startswith("kvspill-")}


def install(wheel: Path, venv: Path) -> Path:
    """A fresh environment with that wheel, on top of the packages that are here."""
    call([sys.executable, "-m", "venv", "--without-pip", str(venv)], venv.parent)
    python = venv / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    call([*pip, str(wheel)], venv.parent)
    (site,) = venv.glob("lib/python*/site-packages")
    # A directory that a .pth file adds has its own .pth files ignored: an editable kvspill stays hidden.
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return venv / "bin" / "kvspill"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_tree(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(source, tmp_path_factory.mktemp("wheel"))


def test_a_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    wanted = {name.removeprefix("src/") for name in tracked("src/kvspill") if not name.endswith(".c")}
    assert wanted - files_in(wheel) == set()


@pytest.mark.skipif(shutil.which(os.environ.get("CC", "cc")) is None, reason="no compiler is here")
def test_a_wheel_has_the_compiled_helper_where_there_is_a_compiler(wheel: Path) -> None:
    assert any(name.startswith(HELPER) and name.endswith(".so") for name in files_in(wheel))


def test_an_installed_wheel_works_from_another_directory(wheel: Path, tmp_path: Path) -> None:
    kvspill = str(install(wheel, tmp_path / "venv"))
    here = tmp_path / "elsewhere"
    here.mkdir()
    assert "llama3.1-8b" in call([kvspill, "models"], here)
    small = ["--model", "tiny-1b", "--quiet", "--max-requests", "20"]
    for more in (["--trace", "mooncake:sample"], ["--trace", "weka:sample"], ["--engine", "lmcache"]):
        call([kvspill, "simulate", *small, *more, "--output", "simulated.json"], here)
    real = ["--cpu-mem-gb", "0.25", "--storage-capacity-gb", "1", "--generation-mode", "none"]
    real += ["--request-rate", "100"]
    call([kvspill, "run", *small, *real, "--cache-dir", str(here), "--output", "result.json"], here)
    call([kvspill, "report", "result.json", "-o", "page.html"], here)
    assert "<html" in (here / "page.html").read_text()
    assert "production" in call([kvspill, "suite", "--help"], here)
    found = call([str(tmp_path / "venv/bin/python"), "-c", "import kvspill; print(kvspill.__file__)"], here)
    assert str(tmp_path / "venv") in found


def test_without_a_compiler_it_installs_runs_and_doctor_says_so(source: Path, tmp_path: Path) -> None:
    sdist = build_sdist(source, tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    pure = build_wheel(unpacked, tmp_path / "pure", **NO_COMPILER)
    assert not any(name.endswith(".so") for name in files_in(pure))
    wanted = {name.removeprefix("src/") for name in tracked("src/kvspill") if not name.endswith(".c")}
    assert wanted - files_in(pure) == set()
    kvspill = str(install(pure, tmp_path / "venv"))
    here = tmp_path / "elsewhere"
    here.mkdir()
    said = call([kvspill, "doctor", "--cache-dir", str(here)], here)
    assert "timing helper: not compiled" in said
    assert "install a C compiler and reinstall kvspill" in said
    small = ["--model", "tiny-1b", "--quiet", "--max-requests", "20", "--generation-mode", "none"]
    tiers = ["--cpu-mem-gb", "0.25", "--storage-capacity-gb", "1", "--cache-dir", str(here)]
    tiers += ["--request-rate", "100"]
    call([kvspill, "run", *small, *tiers, "--output", "result.json"], here)
