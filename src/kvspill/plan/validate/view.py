"""A validation as text: the table, the verdict and the named differences."""

from collections.abc import Mapping
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

_WIDTH = 150
_CUT = 44


def text_of(found: Mapping[str, Any]) -> str:
    """What the console shows, and the page."""
    preset = found["preset"]
    table = Table("", f"{preset['engine']} {found['engine_version']}", "kvspill", "verdict", "", box=None)
    for row in found["rows"]:
        table.add_row(row["name"], _shown(row["engine"]), _shown(row["ours"]), row["verdict"], row["note"])
    sink = StringIO()
    console = Console(file=sink, width=_WIDTH, highlight=False, markup=False)
    console.print(table)
    console.print()
    console.print(_verdict(found))
    judged = {row["name"]: row["verdict"] for row in found["rows"]}
    # A preset may name what did not occur here: a row that is equal all the same, or was not judged.
    named = [
        f"  {line}"
        for line in found["differences"]
        if judged.get(line.partition(":")[0], "named difference") == "named difference"
    ]
    if named:
        console.print("Named differences:")
        for line in named:
            console.print(line)
    console.print(f"Watched by {found['witness']}.")
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines()) + "\n"


def _verdict(found: Mapping[str, Any]) -> str:
    preset, version = found["preset"], found["engine_version"]
    open_rows = ", ".join(row["name"] for row in found["rows"] if row["verdict"] == "not judged")
    if found["passed"]:
        does = "does what the engine does" + (", as far as it was judged" if open_rows else "")
        text = f"The preset {found['engine']} {does}, but for the named differences."
    else:
        rows = ", ".join(row["name"] for row in found["rows"] if row["verdict"] == "DIFFERS")
        text = f"The preset {found['engine']} differs from the engine: {rows}."
    if open_rows:
        text += f" Not judged: {open_rows}."
    if version and not str(version).startswith(str(preset["version"])):
        text += f" It reproduces version {preset['version']}; this is {version}."
    return text


def _shown(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return text if len(text) <= _CUT else text[: _CUT - 1] + "…"
