"""Coverage-guided fuzzing of one target: `python tests/fuzz/run_atheris.py mooncake --seconds 60`.

Needs the package atheris. Begins from the same well-formed inputs as the other fuzzing, and says how
many inputs were tried; an input that fails is kept in the current directory by the fuzzer.
"""

import argparse
import os
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

with atheris.instrument_imports(include=["kvspill"]):
    from fuzz.seeds import seeds
    from fuzz.targets import SECONDS_MAX, TARGETS, sandbox


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    with sandbox() as root:
        # The fuzzer ends its process without returning: only another one can tidy up after it.
        fuzzer = os.fork()
        if fuzzer == 0:
            fuzz(options.target, options.seconds, root)
        _pid, status = os.waitpid(fuzzer, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


def fuzz(name: str, seconds: int, root: Path) -> None:
    """Feed a target from a corpus in root; does not return."""
    target = TARGETS[name]
    corpus = root / "corpus"
    corpus.mkdir()
    for number, data in enumerate(seeds(name)):
        (corpus / str(number)).write_bytes(data)
    place = root / "input"
    place.mkdir()
    fuzzer_flags = [f"-max_total_time={seconds}", f"-timeout={SECONDS_MAX}", "-max_len=8192"]
    atheris.Setup([sys.argv[0], *fuzzer_flags, str(corpus)], lambda data: target(data, place))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
