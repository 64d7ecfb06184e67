"""What this program sets in its environment for libraries that it loads, and the environment without that."""

import os

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_set: set[str] = set()


def without_blas_threads() -> None:
    """Call it before numpy is loaded: no matrix is multiplied here, and where OpenBLAS can start no thread it
    sends SIGINT to its own process."""
    if _BLAS_THREADS not in os.environ:
        os.environ[_BLAS_THREADS] = "1"
        _set.add(_BLAS_THREADS)


def of_others() -> dict[str, str]:
    """The environment for programs of others, as it was given."""
    return {name: value for name, value in os.environ.items() if name not in _set}
