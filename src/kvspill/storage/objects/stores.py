"""Opens an object store by its address: endpoint, region and credentials from where its users keep them."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from kvspill.errors import UsageError
from kvspill.plugins import refuse_credentials, without_credentials
from kvspill.waiting import within

SCHEMES = ("s3", "az", "gs")
PART_BYTES_MIN = 5 << 20
"""S3 takes no smaller part of an upload, but for the last."""
_CONNECT_SECONDS = 5
_RETRIES_AT_ONCE, _RETRY_SECONDS_AT_ONCE = 10, 3.0
"""How long the client repeats by itself: it cannot be told that the run is over."""
BACKOFF_MIN_SECONDS = 0.1
_BACKOFF_MAX_SECONDS = 5
"""Pauses before a request is repeated are drawn from a range that grows up to this."""
_ABORT_SECONDS = 60.0
_REQUEST_SECONDS_MAX = 600
"""A request that moves bytes may take so long; one that stalls ends after --s3-timeout."""
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")
_KEYS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile of ~/.aws/credentials"

_ENDPOINT_VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}


@dataclass(frozen=True, slots=True)
class Location:
    """What an address names."""

    scheme: str
    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


@dataclass(frozen=True, slots=True)
class Stores:
    """The same place twice: one client that fails at once, and one that tries again."""

    location: Location
    strict: Any
    patient: Any
    """Repeats a request for a short while; an upload in parts, each part by itself."""
    retries: int
    retry_seconds: float
    about: str
    """Endpoint and style, for the result."""
    uploads: "Uploads | None" = None
    """Who finds multipart uploads that nobody will finish; None where the store removes them itself."""


@dataclass(frozen=True, slots=True)
class Uploads:
    """Multipart uploads under way: a killed run leaves them, and no list of objects shows them."""

    client: Any
    location: Location

    def abort(self, below: str) -> int:
        """Abort those below a prefix; returns how many there were.

        A server that cannot list them, or does not let us, keeps what it has of them to itself, as one does
        whose list has no end.
        """
        try:
            return within(_ABORT_SECONDS, partial(self._abort, below))
        except TimeoutError:
            return 0

    def _abort(self, below: str) -> int:
        from botocore.exceptions import BotoCoreError, ClientError

        count = 0
        try:
            for key, upload_id in list(self._found("/".join(filter(None, (self.location.prefix, below))))):
                self.client.abort_multipart_upload(Bucket=self.location.bucket, Key=key, UploadId=upload_id)
                count += 1
        except (BotoCoreError, ClientError, KeyError):
            return count
        return count

    def _found(self, prefix: str) -> Iterator[tuple[str, str]]:
        pages = self.client.get_paginator("list_multipart_uploads")
        for page in pages.paginate(Bucket=self.location.bucket, Prefix=f"{prefix}/"):
            for upload in page.get("Uploads", ()):
                # Some servers take the prefix for a hint.
                if upload["Key"].startswith(f"{prefix}/"):
                    yield upload["Key"], upload["UploadId"]


def parse(address: str) -> Location:
    """Bucket and prefix of an address; one without a bucket is refused."""
    scheme, _, rest = address.partition("://")
    bucket, _, prefix = rest.partition("/")
    parts = [part for part in prefix.split("/") if part]
    if not bucket or "@" in bucket or any(part in (".", "..") for part in parts):
        raise UsageError(
            f"--cache-dir {address}: is not a bucket address; write {scheme}://bucket/prefix, and give "
            "credentials by the environment"
        )
    return Location(scheme.lower(), bucket, "/".join(parts))


def missing_package() -> str | None:
    """Why no object store can be opened here, or None."""
    from importlib.util import find_spec

    lacking = [name for name in ("obstore", "boto3") if find_spec(name) is None]
    return f"{' and '.join(lacking)} missing; pip install 'kvspill[s3]'" if lacking else None


def open_stores(address: str, options: Mapping[str, Any]) -> Stores:
    """The store at an address. Nothing is asked of it yet."""
    location = parse(address)
    given = options["endpoint"]
    check_endpoint(location, given)
    if given and "://" not in given:
        raise UsageError(f"--s3-endpoint {given}: has no scheme; write http://{given} or https://{given}")
    opened: dict[str, Callable[[Location, Mapping[str, Any]], Stores]] = {
        "s3": _s3,
        "az": _azure,
        "gs": _google,
    }
    return opened[location.scheme](location, options)


def _s3(location: Location, options: Mapping[str, Any]) -> Stores:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError
    from obstore.auth.boto3 import Boto3CredentialProvider
    from obstore.store import S3Store

    try:
        session = boto3.session.Session()
        region = options["region"] or session.region_name or "us-east-1"
        if session.get_credentials() is None:
            raise UsageError(f"--cache-dir {location}: no credentials for S3 were found; {_KEYS}")
        style = options["addressing"]
        client = session.client(
            "s3",
            region_name=region,
            endpoint_url=options["endpoint"],
            config=Config(
                s3={"addressing_style": style},
                connect_timeout=_CONNECT_SECONDS,
                read_timeout=options["timeout"],
                retries={"total_max_attempts": 1},
            ),
        )
    except (BotoCoreError, ValueError) as error:
        raise UsageError(
            f"--cache-dir {location}: S3 cannot be set up ({without_credentials(str(error))}); {_KEYS}"
        ) from None
    endpoint = str(client.meta.endpoint_url)
    refuse_credentials("endpoint_url in the configuration of AWS ", endpoint)
    _check_scheme(location, endpoint, options)
    own = not (urlsplit(endpoint).hostname or "").endswith(_AMAZON)
    path_style = style == "path" or (style == "auto" and own)
    if own and not path_style and _is_number(urlsplit(endpoint).hostname or ""):
        raise UsageError(
            f"--s3-addressing {style}: the name of a bucket cannot stand before an IP address ({endpoint}); "
            "give --s3-addressing path, or an endpoint with a host name"
        )
    given: dict[str, Any] = {
        "region": region,
        "credential_provider": Boto3CredentialProvider(session),
        "virtual_hosted_style_request": not path_style,
    }
    if own:
        host = urlsplit(endpoint)
        # The client takes the endpoint of that style with the bucket in it.
        given["endpoint"] = endpoint if path_style else f"{host.scheme}://{location.bucket}.{host.netloc}"
    about = f"{endpoint}, {'path' if path_style else 'virtual-hosted'} style, region {region}"
    stores = _pair(lambda **more: S3Store(location.bucket, **given, **more), location, options)
    return Stores(location, *stores, about, Uploads(client, location))


def _azure(location: Location, options: Mapping[str, Any]) -> Stores:
    from obstore.store import AzureStore

    given = {"endpoint": options["endpoint"]} if options["endpoint"] else {}
    _check_scheme(location, options["endpoint"] or "", options)
    stores = _pair(lambda **more: AzureStore(location.bucket, **given, **more), location, options)
    return Stores(location, *stores, "Azure Blob Storage")


def _google(location: Location, options: Mapping[str, Any]) -> Stores:
    from obstore.store import GCSStore

    if options["endpoint"]:
        raise UsageError(f"--s3-endpoint {options['endpoint']}: gs:// has no other endpoint; leave it out")
    stores = _pair(lambda **more: GCSStore(location.bucket, **more), location, options)
    return Stores(location, *stores, "Google Cloud Storage")


def _is_number(host: str) -> bool:
    """Whether a host is an IP address; one whose last part is a number is read as one."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def check_endpoint(location: Location, given: str | None) -> None:
    """Refuse credentials in the endpoint that was given, or in the variables that the clients read else."""
    if given:
        refuse_credentials("endpoint ", given)
        return
    for name in _ENDPOINT_VARIABLES.get(location.scheme, ()):
        refuse_credentials(f"{name}=", os.environ.get(name, ""))


def _check_scheme(location: Location, endpoint: str, options: Mapping[str, Any]) -> None:
    if endpoint.lower().startswith("http://") and not options["allow-http"]:
        raise UsageError(
            f"--cache-dir {location}: its endpoint {endpoint} is not encrypted; "
            "add --s3-allow-http true if you mean it"
        )


def _pair(
    make: Callable[..., Any], location: Location, options: Mapping[str, Any]
) -> tuple[Any, Any, int, float]:
    """The client that fails at once, the one that repeats, and for how often and how long."""
    from obstore.exceptions import BaseError

    timeout = timedelta(seconds=options["timeout"])
    client = {
        "allow_http": bool(options["allow-http"]),
        "connect_timeout": timedelta(seconds=min(_CONNECT_SECONDS, options["timeout"])),
        "read_timeout": timeout,
        "timeout": timedelta(seconds=max(_REQUEST_SECONDS_MAX, options["timeout"])),
    }
    again = {
        "max_retries": min(options["retries"], _RETRIES_AT_ONCE),
        "retry_timeout": timedelta(seconds=min(options["retry-seconds"], _RETRY_SECONDS_AT_ONCE)),
        "backoff": {
            "init_backoff": timedelta(seconds=BACKOFF_MIN_SECONDS),
            "max_backoff": timedelta(seconds=_BACKOFF_MAX_SECONDS),
        },
    }
    shared = {"prefix": location.prefix or None, "client_options": client}
    try:
        strict, patient = make(**shared, retry_config={"max_retries": 0}), make(**shared, retry_config=again)
    except (BaseError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"--cache-dir {location}: cannot be set up ({reason}); see docs/object-stores.md"
        ) from error
    return strict, patient, options["retries"], options["retry-seconds"]
