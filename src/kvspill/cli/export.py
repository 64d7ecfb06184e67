"""`kvspill export`: what a run did as a fio job, as a fio replay, or as a trace."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from kvspill.cli.options import Parser, check_outputs, helped
from kvspill.config.fields import flag_of
from kvspill.errors import UsageError
from kvspill.outputs import beside, is_stream, write_file
from kvspill.refusals import refuse_clashes
from kvspill.texts import one_line, put

EXAMPLES = """\
examples:
  the load of a result as a fio job (sizes, mix, depth, think time):
    kvspill export fio result.json -o job.fio --directory /mnt/other && fio job.fio
  every call of a logged run, replayed by fio (job.fio, and job.fio.iolog):
    kvspill run --log-ops ops.parquet --cache-dir /mnt/nvme
    kvspill export fio ops.parquet -o job.fio --directory /mnt/other && fio job.fio
  its requests as a trace, to run them on other storage:
    kvspill export trace ops.parquet -o load.jsonl
    kvspill run --trace kvcache:load.jsonl --cache-dir /mnt/other
"""
_BLOCK_TOKENS = 256
_OF_KIND = {"directory": "fio", "no_stall": "fio", "block_tokens": "trace"}
"""Flags that one kind of export alone knows."""


def _parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        usage=f"{prog} fio|trace FILE -o FILE [FLAGS]",
        description="Writes what a run did as a fio job, a fio replay or a trace.",
        epilog=EXAMPLES,
    )
    parser.add_argument("kind", choices=("fio", "trace"), help="what to write")
    parser.add_argument("source", metavar="FILE", help="a result (fio), or a log of --log-ops (fio, trace)")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where to write it")
    parser.add_argument("--directory", metavar="DIR", help="fio: where the job's files are to lie [.]")
    parser.add_argument(
        "--no-stall",
        action="store_true",
        default=None,
        help="fio: replay as fast as the device allows, not at the log's times",
    )
    parser.add_argument(
        "--block-tokens",
        metavar="N",
        type=int,
        help=f"trace: tokens per block, where the run's load listed none [{_BLOCK_TOKENS}]",
    )
    parser.add_argument("--debug", action="store_true", help="print a traceback with an error")
    return parser


def main(argv: Sequence[str], prog: str = "kvspill export") -> int:
    """Read, convert and write; returns the exit code."""
    parser = _parser(prog)
    if helped(argv, parser):
        return 0
    options = parser.parse_args(list(argv))
    source, output = Path(options.source), options.output
    check_outputs({"--output": output}, _inputs(source, options.kind))
    for name, kind in _OF_KIND.items():
        if kind != options.kind and getattr(options, name) is not None:
            raise UsageError(f"{flag_of(name)}: belongs to `{prog} {kind}`; leave it out")
    if options.kind == "trace":
        given = options.block_tokens
        written = _trace(source, output, _BLOCK_TOKENS if given is None else given)
    else:
        written = _fio(source, output, options)
    put("Files written:\n" + "\n".join(f"  {one_line(path)}" for path in written))
    return 0


def _inputs(source: Path, kind: str) -> list[Path]:
    from kvspill.measure.oplog import requests_path

    return [source, requests_path(source)] if kind == "trace" and source.name else [source]


def _trace(source: Path, output: str, block_tokens: int) -> list[str]:
    from kvspill.report.exports.logs import is_log
    from kvspill.report.exports.traces import trace_lines

    if not 1 <= block_tokens <= 1_000_000:
        raise UsageError(f"--block-tokens {block_tokens}: must be within 1 to 1,000,000")
    if not is_log(source):
        raise UsageError(f"{source}: no log of operations; name the file that a run wrote with --log-ops")
    write_file(output, "".join(f"{line}\n" for line in trace_lines(source, block_tokens)), "--output")
    return [output]


def _fio(source: Path, output: str, options: argparse.Namespace) -> list[str]:
    from kvspill.report.exports.logs import is_log

    if not is_log(source):
        from kvspill.report.exports.fio_job import job_text as job_of_result
        from kvspill.result.reading import load_result

        write_file(output, job_of_result(load_result(source), options.directory or "."), "--output")
        return [output]
    from kvspill.report.exports.fio_log import FILE, job_text, log_lines, replay_of

    if is_stream(Path(output)):
        raise UsageError(
            f"--output {output}: is no file, and a replay's log lies beside its job; name a file"
        )
    log = _log_beside(source, output)
    replay, file = replay_of(source), Path(options.directory or ".").resolve() / FILE
    if any(odd in str(path) for path in (log, file) for odd in ":\n"):
        raise UsageError(f"--output {output}: fio takes no colon or line end in a path; name another file")
    write_file(log, "".join(f"{line}\n" for line in log_lines(replay, file)), "--output", named=False)
    write_file(output, job_text(replay, log, file, not options.no_stall), "--output")
    return [output, str(log)]


def _log_beside(source: Path, output: str) -> Path:
    """Where the log of a replay goes, which nobody named: it replaces nothing that was."""
    log = beside(Path(output), ".iolog")
    if log.is_dir() and not log.is_symlink():
        raise UsageError(f"--output {output}: its {log.name}: is a directory; name another file")
    refuse_clashes(
        {f"--output {output}": output, f"--output {output}: its {log.name}": log}, [source], named=False
    )
    return log.parent.resolve() / log.name
