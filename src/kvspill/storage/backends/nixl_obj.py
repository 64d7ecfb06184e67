"""The nixl-obj backend as a plug-in: objects of an S3 store that NVIDIA's transfer library moves."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvspill.plugins import Need, Option, Plugin
from kvspill.storage.backends import s3
from kvspill.storage.base import Backend, BackendContext
from kvspill.storage.objects.stores import missing_package

if TYPE_CHECKING:
    from kvspill.storage.findings import Finding
    from kvspill.storage.lease import Cleaned


def make(context: BackendContext) -> Backend:
    """Objects below the prefix that the address names."""
    from kvspill.errors import UsageError
    from kvspill.storage.nixl.agent import read_parameters
    from kvspill.storage.nixl.objects import NixlObjectBackend

    if len(context.addresses) > 1:
        raise UsageError("--cache-dir: nixl+obj takes one address; name one bucket")
    return NixlObjectBackend(context, read_parameters(context.options["params"], "--nixl-obj-params"))


def clean(address: str, options: Mapping[str, Any]) -> "Cleaned":
    """Remove the runs below the prefix whose lease is over."""
    return s3.clean(_in_s3(address), options)


def ask(address: str, options: Mapping[str, Any]) -> "list[Finding]":
    """Whether the store answers, and how."""
    return s3.ask(_in_s3(address), options)


def _in_s3(address: str) -> str:
    return address.replace("nixl+obj://", "s3://", 1)


def _why_not() -> str | None:
    from kvspill.storage.nixl.agent import why_missing

    return why_missing("OBJ") or missing_package()


PLUGIN = Plugin(
    name="nixl-obj",
    help="objects of an S3 store, moved by NVIDIA's NIXL",
    make=make,
    options=(
        *s3.PLUGIN.options,
        Option("params", "parameters of NIXL's plug-in: NAME=VALUE,NAME=VALUE; no credentials", secret=True),
    ),
    needs=frozenset({Need.ADDRESS}),
    schemes=("nixl+obj",),
    ready=_why_not,
    clean=clean,
    ask=ask,
)
