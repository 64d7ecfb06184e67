"""The s3 backend as a plug-in: objects in a bucket of S3, Azure Blob Storage or Google Cloud Storage."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvspill.plugins import Need, Option, Plugin
from kvspill.storage.base import Backend, BackendContext
from kvspill.storage.objects.stores import PART_BYTES_MIN, SCHEMES, missing_package

if TYPE_CHECKING:
    from kvspill.storage.findings import Finding
    from kvspill.storage.lease import Cleaned


def make(context: BackendContext) -> Backend:
    """Objects below the prefix that the address names."""
    from kvspill.storage.objects.backend import ObjectBackend

    return ObjectBackend(context)


def clean(address: str, options: Mapping[str, Any]) -> "Cleaned":
    """Remove the runs below the prefix whose lease is over."""
    from kvspill.storage.objects.prefix import clean_address

    return clean_address(address, options)


def ask(address: str, options: Mapping[str, Any]) -> "list[Finding]":
    """Whether the store answers, and how."""
    from kvspill.storage.objects.doctor import ask_address

    return ask_address(address, options)


PLUGIN = Plugin(
    name="s3",
    help="objects in a bucket: s3://bucket/prefix, az:// and gs:// likewise",
    make=make,
    options=(
        Option("endpoint", "a server other than Amazon's (also AWS_ENDPOINT_URL)"),
        Option("region", "region of the bucket (also AWS_REGION)"),
        Option(
            "addressing",
            "bucket in the path or in the host name; auto: path where an endpoint is given",
            default="auto",
            choices=("auto", "path", "virtual"),
        ),
        Option("allow-http", "allow an unencrypted endpoint", default=False, kind=bool),
        Option(
            "timeout", "seconds without a byte that end a request", 30.0, float, minimum=0.1, maximum=3600
        ),
        Option("retries", "most retries of a request", 300, int, minimum=0, maximum=10_000),
        Option("retry-seconds", "seconds after which none is repeated", 30.0, float, minimum=0, maximum=3600),
        Option("price-put", "price of 1,000 writes and lists, for the cost", kind=float, minimum=0),
        Option("price-get", "price of 1,000 reads", kind=float, minimum=0),
        Option("price-gib", "price of a GiB read", kind=float, minimum=0),
    ),
    needs=frozenset({Need.ADDRESS}),
    schemes=SCHEMES,
    suits={"io_size": PART_BYTES_MIN},
    ready=missing_package,
    clean=clean,
    ask=ask,
)
