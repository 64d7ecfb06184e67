"""Small files that would grow without end, and a shell with little memory and time to read them in."""

import base64
import ctypes
import gzip
import io
import json
import struct
import zipfile
import zlib
from pathlib import Path

from openpyxl import Workbook

from cli.forks import forked

MEMORY_BYTES = 2 << 30
SECONDS = 20
MIB = 1 << 20


def shell(words: list[str], cwd: Path, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Run kvspill with 2 GiB of address space and 20 seconds: exit code, output, error lines."""
    return forked(words, cwd, env=env, memory_bytes=MEMORY_BYTES, seconds=SECONDS)


def packed(unit: bytes, total_bytes: int, head: bytes = b"") -> bytes:
    """A gzip file of so many bytes, all of them one unit, made in no time: its members repeat."""
    member = gzip.compress(unit * (16 * MIB // len(unit)), 9)
    return gzip.compress(head) + member * (total_bytes // (16 * MIB))


def histogram(total_bytes: int) -> str:
    """An HdrHistogram in base64 whose packed part unpacks to so many zeros."""
    header = struct.pack(">IIIIQQd", 0x1C849313, total_bytes, 0, 3, 1, 172_800_000_000_000, 1.0)
    packer = zlib.compressobj(9)
    body = packer.compress(header) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush a block stands for itself, so it can be repeated.
    zeros = packer.compress(bytes(16 * MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    raw = body + zeros * (total_bytes // (16 * MIB))
    return base64.b64encode(struct.pack(">II", 0x1C849314, ctypes.c_uint(len(raw)).value) + raw).decode()


def xlsx(parts: dict[str, list[bytes]]) -> bytes:
    """A workbook of one sheet with a few parts replaced, each given in pieces."""
    plain = io.BytesIO()
    book = Workbook()
    book.active.append(["Filename", "Avg Throughput (tok/s)"])  # type: ignore[union-attr]
    book.save(plain)
    made = io.BytesIO()
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            with new.open(name, "w", force_zip64=True) as part:
                for piece in parts.get(name, [old.read(name)]):
                    part.write(piece)
    return made.getvalue()


SHEET = "xl/worksheets/sheet1.xml"
_SHEET_HEAD = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'


def sheet(dimension: str, rows: list[bytes]) -> dict[str, list[bytes]]:
    head = _SHEET_HEAD + f'<dimension ref="{dimension}"/><sheetData>'.encode()
    return {SHEET: [head, *rows, b"</sheetData></worksheet>"]}


def laughs(lines: int = 40, width: int = 10) -> str:
    """YAML whose aliases stand for width to the power of lines values."""
    made = ["a0: &a0 [x, x]"]
    for number in range(1, lines):
        inside = ", ".join([f"*a{number - 1}"] * width)
        made.append(f"a{number}: &a{number} [{inside}]")
    return "\n".join(made) + "\n"


def merges(lines: int = 26) -> str:
    """YAML whose merges double a mapping as many times."""
    made = ["m0: &m0 {k: 1}"]
    made += [f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}" for n in range(1, lines)]
    return "\n".join(made) + "\n"


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def manifest(**changes: object) -> str:
    scenario = {"name": "a", "title": "a", "purpose": "", "settings": {"num_users": 1}, "origin": "x"}
    row = {"scenario": scenario, "file": "01-a.json", "status": "pending", "reason": "", "seconds": None}
    whole: dict[str, object] = {
        "schema_version": 1,
        "kvspill_version": "0",
        "title": "t",
        "simulated": True,
        "quick": True,
        "notes": [],
        "rows": [row],
        "created_at": "",
        "facts": {},
    }
    return json.dumps({**whole, **changes})
