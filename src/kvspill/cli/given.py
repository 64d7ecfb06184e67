"""What report and compare were given: results, directories of results, and suites with their advice."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kvspill.errors import UsageError
from kvspill.texts import listed, one_line, put

if TYPE_CHECKING:
    from kvspill.report.html.facts import Labelled
    from kvspill.report.html.figure import Section
    from kvspill.report.html.page import Remarks
    from kvspill.result.schema import Result
    from kvspill.suite.manifest import Manifest, Row

FILES_MAX = 500
"""A page holds all that it shows, and so does the memory that makes it: about 1 MiB for each result."""


def with_rows(words: Sequence[str]) -> list[str]:
    """The same words, with the results of its rows in place of each suite's directory.

    A row without a result is named on stderr; one whose result is lost is refused.
    """
    from kvspill.suite.manifest import is_suite, load

    found: list[str] = []
    for word in words:
        if is_suite(word):
            folder, manifest = _suite(word)
            for row, marked in zip(manifest.rows, load(folder, flag="").rows, strict=True):
                if marked.finished and not row.finished:
                    raise UsageError(
                        f"{folder / row.file}: lost or damaged, but its row is marked as finished; run "
                        f"`kvspill suite --resume {word}`, or name the results one by one"
                    )
                if not row.finished:
                    why = f"{row.status.value}. {row.reason}".strip()
                    put(one_line(f"{word}: {row.scenario.name} is left out: {why}"), sys.stderr)
            found += [str(folder / row.file) for row in manifest.rows if row.finished]
        else:
            found.append(word)
    return found


def are_suites(words: Sequence[str]) -> bool:
    from kvspill.suite.manifest import is_suite

    return all(is_suite(word) for word in words)


@dataclass(frozen=True, slots=True)
class Given:
    """Every result under a label of its own, its name in tables, what suites advise, and the curves."""

    results: "list[Labelled]"
    names: list[str]
    remarks: "list[Remarks]"
    curves: "list[tuple[str, dict[str, Any]]]"


@dataclass(frozen=True, slots=True)
class _Suite:
    """A suite, by the name that tells it from others, with the rows that have a result."""

    name: str
    folder: Path
    manifest: "Manifest"
    group: str
    """Its name beside each of its rows, where there are several suites."""

    @property
    def rows(self) -> "dict[str, Row]":
        return {row.scenario.name: row for row in self.manifest.rows if row.finished}


def read_rows(words: Sequence[str]) -> "Iterator[tuple[str, Result]]":
    """Every result under its name in tables: one at a time, as each takes eight times its file."""
    for item in _results_of(_suites(words)):
        yield item.label, item.result
    for name, read in _read(_files(words)):
        if isinstance(read, dict):
            refuse_curve(name)
        yield name, read


def refuse_curve(name: str) -> NoReturn:
    """Where a table is asked for."""
    raise UsageError(
        f"{name}: a curve, which has no row in a table of results; name results alone, or "
        "leave --csv and --xlsx out"
    )


def read_all(words: Sequence[str]) -> Given:
    """Read everything that was given."""
    from kvspill.report.html.facts import labelled

    files = _files(words)
    _refuse_many(len(files))
    suites = _suites(words)
    _refuse_many(len(files) + sum(len(suite.rows) for suite in suites))
    found = list(_results_of(suites))
    results = {(item.group, item.row): item.result for item in found}
    remarks = []
    for suite in suites:
        keys = {name: (suite.group, name) for name in suite.rows}
        rows = {name: results[key] for name, key in keys.items() if key in results}
        remarks.append(_remarks(suite.name, suite.manifest, rows))
    read = list(_read(files))
    curves = [(name, one) for name, one in read if isinstance(one, dict)]
    plain = [(name, one) for name, one in read if not isinstance(one, dict)]
    names_in_tables = [*(item.label for item in found), *(name for name, _ in plain)]
    return Given([*found, *labelled(plain)], names_in_tables, remarks, curves)


def _refuse_many(results: int) -> None:
    if results > FILES_MAX:
        raise UsageError(
            f"{results:,} results are more than a page can show ({FILES_MAX:,}); name fewer, or give "
            "--csv or --xlsx without -o, which take any number"
        )


def sections_of(curves: "Sequence[tuple[str, dict[str, Any]]]") -> "list[Section]":
    """What a page shows of curves."""
    from kvspill.curve.view import rates_of, words_of
    from kvspill.report.html.curves import DrawnCurve, curve_sections
    from kvspill.report.html.facts import different
    from kvspill.result.reading import refusing_damage

    names = different([name for name, _ in curves])
    with refusing_damage(listed(names)):
        return curve_sections(
            [
                DrawnCurve(name, curve, words_of(curve), rates_of(curve))
                for name, (_, curve) in zip(names, curves, strict=True)
            ]
        )


def _names(suites: Sequence[str]) -> list[str]:
    """The directories' own names; whole where two are called the same."""
    short = [Path(word).resolve().name for word in suites]
    return short if len(set(short)) == len(set(suites)) else list(suites)


def _suite(word: str) -> "tuple[Path, Manifest]":
    from kvspill.suite.manifest import load, settle

    folder = Path(word)
    manifest = settle(folder, load(folder, flag=""))
    if not any(row.finished for row in manifest.rows):
        raise UsageError(f"{word}: a suite without a result yet; run `kvspill suite --resume {word}` first")
    return folder, manifest


def _suites(words: Sequence[str]) -> list[_Suite]:
    from kvspill.suite.manifest import is_suite

    suites = [word for word in words if is_suite(word)]
    names = dict(zip(suites, _names(suites), strict=True))
    return [_Suite(name, *_suite(word), name if len(names) > 1 else "") for word, name in names.items()]


def _results_of(suites: Sequence[_Suite]) -> "Iterator[Labelled]":
    """Those of suites, one at a time, the same row of each suite side by side."""
    from kvspill.report.html.facts import Labelled
    from kvspill.suite.manifest import read_result

    for name in dict.fromkeys(name for suite in suites for name in suite.rows):
        for suite in suites:
            row = suite.rows.get(name)
            result = None if row is None else read_result(suite.folder, row)
            if result is not None:
                label = f"{name} ({suite.group})" if suite.group else name
                yield Labelled(label, result, row=name, group=suite.group)


def _remarks(name: str, manifest: "Manifest", rows: "dict[str, Result]") -> "Remarks":
    """The suite's advice, and the rows that it has no result of."""
    from kvspill.report.html.page import Remarks
    from kvspill.suite.advice import advise
    from kvspill.suite.backends import BACKENDS, lines, ranked
    from kvspill.suite.closing import PROBE
    from kvspill.suite.facts import figures
    from kvspill.suite.submission import SUBMISSION

    left = [
        f"{row.scenario.name}: {row.status.value}. {row.reason}" for row in manifest.rows if not row.finished
    ]
    if manifest.facts.get("kind") == SUBMISSION:
        return Remarks(name, ["The trials of a submission; submission.txt has its summary.", *left])
    if manifest.facts.get("kind") == BACKENDS:
        order = ", ".join(f"{rank} {target}" for target, rank in ranked(rows))
        return Remarks(name, [f"Ranks: {order}.", *lines(rows), *left])
    found = {row: figures(row, result) for row, result in rows.items()}
    return Remarks(name, [*advise(found, manifest.facts.get(PROBE)), *left], manifest.simulated)


def _files(words: Sequence[str]) -> list[Path]:
    """The files that are no rows of a suite."""
    from kvspill.suite.manifest import is_suite

    found: list[Path] = []
    for word in words:
        path = Path(word)
        if is_suite(word):
            continue
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise UsageError(f"{word}: no JSON file in this directory; give one with results, or a suite's")
        found += inside
    return found


def _read(files: Sequence[Path]) -> "Iterator[tuple[str, Result | dict[str, Any]]]":
    """What is in each, by its name: a result, or a curve as it was written."""
    from kvspill.report.compare.run import config_in_name
    from kvspill.result.reading import is_curve, read_json, result_of

    for file in files:
        document = read_json(file)
        if is_curve(document, file):
            yield file.stem, document
            continue
        result = result_of(document, file)
        if result.schema_version == 0:
            # Other programs keep their configuration in the file's name, if anywhere.
            result = result.model_copy(update={"config": config_in_name(file.stem)})
        yield file.stem, result
