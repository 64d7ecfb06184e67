"""Real object-store servers: started on a free port, with a bucket, and ended again."""

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEY, SECRET = "a-key-of-tests", "a-secret-of-tests"
BUCKET = "bucket"
_READY_SECONDS_MAX = 30.0


@dataclass
class Server:
    """One server; its process may be ended and started again on the same port."""

    name: str
    words: list[str]
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        """What a user of it would set."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
            "KVSPILL_S3_ENDPOINT": self.endpoint,
            "KVSPILL_S3_ALLOW_HTTP": "true",
        }

    @property
    def options(self) -> dict[str, Any]:
        return {"endpoint": self.endpoint, "allow-http": True}

    def start(self) -> None:
        self.process = subprocess.Popen(self.words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + _READY_SECONDS_MAX
        while not self._answers():
            assert self.process.poll() is None, f"{self.name} ended at once: {' '.join(self.words)}"
            assert time.monotonic() < until, f"{self.name} did not answer after {_READY_SECONDS_MAX} s"
            time.sleep(0.05)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        return False

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def client(self) -> Any:
        """Amazon's own client, to look at what is stored from outside."""
        import boto3

        keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
        return boto3.client("s3", endpoint_url=self.endpoint, **keys)

    def keys(self, prefix: str = "") -> list[str]:
        """What lies in the bucket."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [found["Key"] for page in pages for found in page.get("Contents", ())]

    def uploads(self) -> list[str]:
        """Keys of uploads that nobody has finished."""
        found = self.client().list_multipart_uploads(Bucket=BUCKET)
        return [upload["Key"] for upload in found.get("Uploads", ())]


def why_not(name: str) -> str | None:
    """Why a server cannot be had here, or None."""
    lacking = [one for one in ("moto", "obstore", "boto3") if importlib.util.find_spec(one) is None]
    lacking += ["rclone"] if name == "rclone" and _rclone() is None else []
    return f"{', '.join(lacking)} missing; pip install 'kvspill[dev]'" if lacking else None


@contextlib.contextmanager
def serving(name: str, folder: Path) -> Iterator[Server]:
    """moto, which emulates S3 in memory, or rclone, which serves a directory and has no ranged reads."""
    port = free_port()
    if name == "moto":
        words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    else:
        (folder / BUCKET).mkdir(parents=True)
        words = [
            _rclone() or "rclone",
            "serve",
            "s3",
            "--addr",
            f"127.0.0.1:{port}",
            "--auth-key",
            f"{KEY},{SECRET}",
        ]
        words += ["--auth-key", f"{KEY},{SECRET}", "--config", str(folder / "rclone.conf"), str(folder)]
    server = Server(name, words, port)
    server.start()
    try:
        if name == "moto":
            server.client().create_bucket(Bucket=BUCKET)
        yield server
    finally:
        server.stop()


def _rclone() -> str | None:
    return shutil.which("rclone", path=os.path.dirname(sys.executable)) or shutil.which("rclone")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
