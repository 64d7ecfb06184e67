"""Files that grow without end, or have none: one line and exit 2, within 2 GiB and 20 seconds.

KVSPILL_ALL_BOMBS=1 tries every bomb on every reader; else each bomb meets one reader, and each reader some.
"""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.bombs import MIB, histogram, laughs, manifest, merges, nested, packed, sheet, shell, xlsx
from unit.result import sample

GIB = 1 << 30
EVERY = "KVSPILL_ALL_BOMBS" in os.environ


def refused(words: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """The one line with which this command line is refused."""
    code, out, err = shell(words.split(), cwd, env)
    assert (code, out) == (2, ""), (code, out[-500:], err[-2000:])
    assert err.startswith("kvspill: error: ")
    assert err.count("\n") == 1, err
    assert "internal error" not in err
    assert len(err) < 1000
    return err


SIMULATE = "simulate --model tiny-1b --num-users 2 --max-requests 3 --quiet --output out.json"
READERS = {
    "config": f"{SIMULATE} --config FILE.yaml",
    "profile": f"{SIMULATE} --device-profile FILE.yaml",
    "scenario": "suite FILE.yaml --simulate --dry-run",
    "manifest": "suite --resume FILE.folder",
    "compare": "compare FILE.json",
    "report": "report FILE.json -o page.html",
    "csv": "compare FILE.csv",
    "xlsx": "compare FILE.xlsx",
    "mooncake": f"{SIMULATE} --trace mooncake:FILE",
    "azure": f"{SIMULATE} --trace azure:FILE --skip-bad-rows",
    "weka": f"{SIMULATE} --trace weka:FILE.json",
    "sharegpt": f"{SIMULATE} --dataset-path FILE",
}


def place_of(words: str, tmp_path: Path) -> Path:
    word = next(word for word in words.split() if "FILE" in word).split(":")[-1]
    if word.endswith(".folder"):
        (tmp_path / word).mkdir()
        return tmp_path / word / "manifest.json"
    return tmp_path / word


ODD = ["/dev/zero", "fifo", "directory", *["/dev/urandom"] * EVERY]


PATIENT = ("azure", "mooncake", "scenario", "sharegpt", "weka")
"""Readers that wait a second for a pipe, as the one of configurations does."""


@pytest.mark.real
@pytest.mark.parametrize(
    ("odd", "name"),
    [
        pytest.param(odd, name, marks=[pytest.mark.slow] if odd == "fifo" and name in PATIENT else [])
        for odd in ODD
        for name in READERS
    ],
)
def test_what_has_no_end_is_refused_as_any_input(name: str, odd: str, tmp_path: Path) -> None:
    place = place_of(READERS[name], tmp_path)
    if odd == "fifo":
        os.mkfifo(place)
    elif odd == "directory":
        place.mkdir()
    else:
        place.symlink_to(odd)
    refused(READERS[name], tmp_path)


YAML_BOMBS: dict[str, str] = {
    "aliases": laughs(),
    "merges": merges(),
    "nesting": "num_users: " + nested(20_000),
    "itself": "scenarios: &a [*a]\n",
    "itself in a setting": "personas: &a {x: *a}\n",
    "long number": f"num_users: {'9' * 5000}\n",
    "long hexadecimal": f"num_users: 0x{'f' * 5000}\n",
    "sexagesimal": f"num_users: {':'.join(['1'] * 3000)}\n",
    "sexagesimal fraction": f"num_users: {':'.join(['1'] * 3000)}.5\n",
    "many values": "a: [" + "x, " * 300_000 + "]\n",
    "no such time": "num_users: !!timestamp x\n",
    "no such truth": "num_users: !!bool x\n",
    "no number": "num_users: !!int ''\n",
}


@pytest.mark.real
@pytest.mark.parametrize(
    ("bomb", "reader"),
    [
        (bomb, reader)
        for bomb in YAML_BOMBS
        for reader in ("config", "profile", "scenario")
        if EVERY or reader == "config" or bomb in ("aliases", "itself")
    ],
)
def test_yaml_that_grows_is_refused(bomb: str, reader: str, tmp_path: Path) -> None:
    (tmp_path / "FILE.yaml").write_text(YAML_BOMBS[bomb])
    refused(READERS[reader], tmp_path)


@pytest.mark.real
@pytest.mark.parametrize("value", [nested(5000), "9" * 5000, "0x" + "f" * 5000, "&a [*a]", "!!bool x"])
def test_a_value_of_set_that_grows_is_refused(value: str, tmp_path: Path) -> None:
    code, _out, err = shell(
        ["suite", "smoke", "--simulate", "--dry-run", "--set", f"num_users={value}"], tmp_path
    )
    assert code == 2
    assert err.startswith("kvspill: error: ")
    assert err.count("\n") == 1
    assert "internal error" not in err
    assert len(err) < 1000


@pytest.mark.real
def test_a_number_without_end_in_a_flag_or_a_variable_is_refused(tmp_path: Path) -> None:
    for words, env in (
        (f"simulate --num-users {'9' * 5000}", {}),
        (f"simulate --duration {'9' * 5000}", {}),
        (f"simulate --io-size {'9' * 5000}", {}),
        ("simulate", {"KVSPILL_NUM_USERS": "9" * 5000}),
    ):
        refused(words, tmp_path, env)


def _result(**changes: object) -> str:
    return json.dumps({**sample.result(), **changes})


JSON_BOMBS: dict[str, Callable[[], str]] = {
    "nesting": lambda: nested(200_000),
    "nesting that just parses": lambda: _result(config={"a": json.loads(nested(800))}),
    "nested objects": lambda: _result(config=json.loads('{"a":' * 400 + "1" + "}" * 400)),
    "values": lambda: "[" + "[]," * (15 * MIB) + "[]]",
    "objects": lambda: '{"schema_version": 2, "config": [' + '{"":0},' * (8 * MIB) + "{}]}",
    "long number": lambda: '{"schema_version": ' + "9" * 5000 + "}",
    "number beyond a float": lambda: _result().replace(
        '"seed": ', '"tokens_per_second": ' + "9" * 4000 + ', "seed": '
    ),
    "number alone": lambda: '{"tokens_per_second": ' + "9" * 4000 + "}",
}


@pytest.mark.real
@pytest.mark.parametrize(
    ("bomb", "reader"),
    [
        (bomb, reader)
        for bomb in JSON_BOMBS
        for reader in ("compare", "report")
        if EVERY or reader == "compare" or bomb == "nesting"
    ],
)
def test_results_that_grow_are_refused(bomb: str, reader: str, tmp_path: Path) -> None:
    (tmp_path / "FILE.json").write_text(JSON_BOMBS[bomb]())
    refused(READERS[reader], tmp_path)


@pytest.mark.real
def test_an_inflated_histogram_is_refused(tmp_path: Path) -> None:
    whole = sample.result()
    assert whole["histograms"]
    bomb = histogram(3 * GIB)
    names = sorted(whole["histograms"])
    inflated = {name: {**whole["histograms"][name], "hdr": bomb} for name in names[:10]}
    (tmp_path / "FILE.json").write_text(
        json.dumps({**whole, "histograms": {**whole["histograms"], **inflated}})
    )
    assert "histogram" in refused(READERS["report"], tmp_path)


def _rows(count: int, row: bytes) -> list[bytes]:
    return [row * 10_000] * (count // 10_000)


XLSX_BOMBS: dict[str, Callable[[], bytes]] = {
    "zeros": lambda: xlsx(sheet("A1", [bytes(16 * MIB)] * 24)),
    "blanks": lambda: xlsx(sheet("A1", [b" " * (16 * MIB)] * 24)),
    "a huge dimension": lambda: xlsx(sheet("A1:XFD1048576", _rows(20_000, b"<row><c><v>1</v></c></row>"))),
    "a row far away": lambda: xlsx(
        sheet("A1:XFD1048576", [b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'])
    ),
    "columns far away": lambda: xlsx(sheet("A1", _rows(100_000, b'<row><c r="XFD1"><v>1</v></c></row>'))),
    "millions of rows": lambda: xlsx(sheet("A1", _rows(5_000_000, b"<row/>"))),
    "elements": lambda: xlsx(sheet("A1", _rows(5_000_000, b"<a/>"))),
    "texts": lambda: xlsx({"xl/sharedStrings.xml": [b"<sst>", *_rows(5_000_000, b"<si/>"), b"</sst>"]}),
    "styles": lambda: xlsx(
        {"xl/styles.xml": [b"<styleSheet>", *_rows(10_000_000, b"<a/>"), b"</styleSheet>"]}
    ),
    "entities": lambda: xlsx(
        {
            "xl/workbook.xml": [
                b'<!DOCTYPE w [<!ENTITY a0 "aaaaaaaaaa">'
                + b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 30))
                + b"]><workbook>&a29;</workbook>"
            ]
        }
    ),
    "a long number": lambda: xlsx(sheet("A1", [b"<row><c><v>" + b"9" * 5000 + b"</v></c></row>"])),
}


@pytest.mark.real
@pytest.mark.parametrize("bomb", XLSX_BOMBS)
def test_tables_in_xlsx_that_grow_are_refused(bomb: str, tmp_path: Path) -> None:
    (tmp_path / "FILE.xlsx").write_bytes(XLSX_BOMBS[bomb]())
    refused(READERS["xlsx"], tmp_path)


@pytest.mark.real
@pytest.mark.parametrize("unit", [b"\n", b",", b",\n", b'"\n', b"0"])
def test_tables_in_csv_that_grow_are_refused(unit: bytes, tmp_path: Path) -> None:
    (tmp_path / "FILE.csv").write_bytes(unit * (15 * MIB // len(unit)))
    refused(READERS["csv"], tmp_path)


MOONCAKE = b'{"timestamp": 0, "input_length": 100, "output_length": 10, "hash_ids": [1]}\n'
TRACES = {
    "mooncake": ("--trace mooncake:FILE.gz", b""),
    "mooncake after a row": ("--trace mooncake:FILE.gz --max-requests 50", MOONCAKE),
    "azure": ("--trace azure:FILE.gz", b"TIMESTAMP,ContextTokens,GeneratedTokens\n"),
    "sharegpt": ("--dataset-path FILE.gz", b"["),
    "sharegpt lines": ("--dataset-path FILE.gz", b'{"conversations": []}\n'),
    "weka": ("--trace weka:FILE.json.gz", b""),
    "weka lines": ("--trace weka:FILE.jsonl.gz", b""),
}


UNITS = (b"\n", b"\0", b"{}\n", b"[", b",", b'\\"', b"{}", b" ")


@pytest.mark.real
@pytest.mark.parametrize(
    ("kind", "unit", "skip"),
    [
        (kind, unit, skip)
        for place, kind in enumerate(TRACES)
        for number, unit in enumerate(UNITS)
        for skip in ("", "--skip-bad-rows")
        if EVERY or (skip and (place + number) % 4 == 0) or (kind == "sharegpt" and not skip)
    ],
)
def test_packed_traces_that_grow_are_refused(kind: str, unit: bytes, skip: str, tmp_path: Path) -> None:
    flags, head = TRACES[kind]
    name = flags.split()[1].split(":")[-1]
    (tmp_path / name).write_bytes(packed(unit, 16 * GIB, head))
    refused(f"simulate --model tiny-1b --num-users 2 --duration 60 --quiet {flags} {skip}", tmp_path)


@pytest.mark.real
@pytest.mark.parametrize("row", [nested(960), nested(100_000), "9" * 5000, '{"a": ' * 480 + "1" + "}" * 480])
@pytest.mark.parametrize("kind", ["mooncake", "sharegpt", "weka"])
def test_a_row_that_nests_is_refused(kind: str, row: str, tmp_path: Path) -> None:
    text = {
        "mooncake": f'{{"timestamp": {row}, "input_length": {row}}}\n',
        "sharegpt": f'[{{"conversations": [{row}, {row}]}}]',
        "weka": f'{{"requests": [{{"t": {row}}}]}}',
    }[kind]
    place_of(READERS[kind], tmp_path).write_text(text)
    refused(READERS[kind], tmp_path)


@pytest.mark.real
def test_rows_of_too_many_values_are_refused(tmp_path: Path) -> None:
    (tmp_path / "FILE").write_text('{"timestamp": [' + "{}," * (20 * MIB) + "{}]}\n")
    refused(READERS["mooncake"], tmp_path)


MANIFESTS: dict[str, Callable[[], str]] = {
    "nesting": lambda: nested(100_000),
    "values": lambda: "[" + "[]," * (15 * MIB) + "[]]",
    "long number": lambda: manifest(title="x").replace('"x"', "9" * 5000),
    "long setting": lambda: manifest().replace('"num_users": 1', f'"num_users": {"9" * 4000}'),
    "nested setting": lambda: manifest().replace('"num_users": 1', f'"num_users": {nested(800)}'),
    "no number": lambda: manifest().replace('"seconds": null', '"seconds": NaN'),
    "a text without end as number": lambda: manifest().replace(
        '"seconds": null', f'"seconds": "{"9" * 400}"'
    ),
    "no finite number": lambda: manifest().replace('"num_users": 1', '"num_users": 1e999'),
    "settings of no kind": lambda: manifest().replace('{"num_users": 1}', "[1]"),
    "rows of no kind": lambda: manifest(rows={"a": 1}),
    "no rows": lambda: manifest(rows=None),
    "facts of no kind": lambda: manifest(facts=[1]),
    "a version of no kind": lambda: manifest(schema_version={"a": [1]}),
    "not an object": lambda: "[1]",
    "not UTF-8": lambda: "\udcff",
}


@pytest.mark.real
@pytest.mark.parametrize("bomb", MANIFESTS)
def test_manifests_that_grow_or_err_are_refused(bomb: str, tmp_path: Path) -> None:
    folder = tmp_path / "FILE.folder"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(MANIFESTS[bomb]().encode("utf-8", "surrogateescape"))
    refused(READERS["manifest"], tmp_path)


SCENARIOS = {
    "name": "scenarios: [{name: [1]}]",
    "row": "scenarios: [1]",
    "rows": "scenarios: {a: 1}",
    "config": "scenarios: [{name: a, config: [1]}]",
    "common": "common: 3\nscenarios: [{name: a}]",
    "number": f"scenarios: [{{name: a, config: {{num_users: {'9' * 200}}}}}]",
    "duration": "scenarios: [{name: a, config: {duration: .nan}}]",
    "long duration": f"scenarios: [{{name: a, config: {{duration: {'9' * 200}}}}}]",
    "model": "scenarios: [{name: a, config: {model: {a: 1}}}]",
    "documents": "scenarios: [{name: a, config: {enable_rag: true, rag_num_docs: [1]}}]",
    "users": "scenarios: [{name: a, config: {enable_autoscaling: true, max_users: {a: 1}}}]",
}


@pytest.mark.real
@pytest.mark.parametrize("bomb", SCENARIOS)
def test_scenarios_of_wrong_types_are_refused(bomb: str, tmp_path: Path) -> None:
    (tmp_path / "FILE.yaml").write_text(SCENARIOS[bomb])
    refused(READERS["scenario"], tmp_path)


@pytest.mark.real
def test_large_inputs_that_are_whole_still_get_through(tmp_path: Path) -> None:
    """A recording of rows far beyond any bound of one row, and a result of tens of megabytes."""
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(MOONCAKE) * 200_000)
    words = "simulate --model tiny-1b --trace mooncake:t.jsonl.gz --max-requests 100 --quiet --output r.json"
    code, _out, err = shell(words.split(), tmp_path)
    assert code == 0, err
    whole = json.loads((tmp_path / "r.json").read_text())
    columns = whole["timeline"]["columns"]
    long = {name: [1.25 for _ in range(500_000)] for name in columns}
    (tmp_path / "r.json").write_text(
        json.dumps({**whole, "timeline": {**whole["timeline"], "columns": long}})
    )
    assert (tmp_path / "r.json").stat().st_size > 10 * MIB
    code, _out, err = shell(["compare", "r.json", "--", "r.json"], tmp_path)
    assert code == 0, err
