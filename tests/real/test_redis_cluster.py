"""Redis servers in a cluster, and one behind TLS: values are found as on a plain server."""

import shutil
import subprocess
from pathlib import Path

import pytest

from kvspill.storage.base import WriteItem
from kvspill.storage.redis.backend import RedisBackend
from kvspill.testing.objects import errors, items
from real.redis_server import RedisServer, free_port, redis_server
from real.rig import wait_until
from real.test_redis import REFS, keys, on

pytestmark = pytest.mark.real


def test_values_of_a_cluster_lie_on_all_of_its_servers_and_are_found_when_they_move() -> None:
    flags = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
    with redis_server(*flags, port=free_port()) as one, redis_server(*flags, port=free_port()) as two:
        nodes = _make_cluster(one, two)

        async def scenario(backend: RedisBackend) -> None:
            assert errors(await backend.write(items(REFS))) == [None] * len(REFS)
            assert errors(await backend.read(REFS)) == [None] * len(REFS)
            assert min(len(keys(one)), len(keys(two))) > 1
            assert errors(await backend.delete(REFS)) == [None] * len(REFS)
            _give_all_slots(one, two, nodes[0])
            again = [WriteItem(ref._replace(generation=2)) for ref in REFS]
            assert errors(await backend.write(again)) == [None] * len(REFS)
            assert errors(await backend.read([ref for ref, _ in again])) == [None] * len(REFS)
            assert int(backend.facts()["retries"]) > 0
            assert "cluster of 2 servers" in backend.capabilities.description

        on(one.address, scenario)
        assert keys(one) == keys(two) == []


def _make_cluster(one: RedisServer, two: RedisServer) -> list[str]:
    names = []
    for server, first, last in ((one, 0, 8191), (two, 8192, 16383)):
        with server.client() as client:
            client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
            names.append(client.execute_command("CLUSTER MYID").decode())
    with one.client() as client:
        client.execute_command("CLUSTER MEET", "127.0.0.1", two.port)

    def joined() -> bool:
        found = []
        for server in (one, two):
            with server.client() as client:
                info = client.execute_command("CLUSTER INFO")
                found.append((info["cluster_state"], info["cluster_known_nodes"], info["cluster_slots_ok"]))
        return found == [("ok", "2", "16384")] * 2

    wait_until(joined)
    return names


def _give_all_slots(one: RedisServer, two: RedisServer, owner: str) -> None:
    """Let the first server own every slot that has no key, behind the backend's back."""
    empty = list(range(8192, 16384))
    for server in (two, one):
        with server.client() as client, client.pipeline(transaction=False) as together:
            for slot in empty:
                together.execute_command("CLUSTER SETSLOT", slot, "NODE", owner)
            answers = together.execute(raise_on_error=False)
        empty = [
            slot for slot, answer in zip(empty, answers, strict=True) if answer is True or answer == b"OK"
        ]


def test_tls_carries_values_like_a_plain_connection(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-days",
        "2",
    ]
    subprocess.run([*words, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    port = free_port()
    flags = ["--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    flags += ["--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no"]

    async def scenario(backend: RedisBackend) -> None:
        assert errors(await backend.write(items(REFS))) == [None] * len(REFS)
        assert errors(await backend.read(REFS)) == [None] * len(REFS)

    with redis_server(*flags) as secured:
        on(f"rediss://localhost:{port}?ssl_ca_certs={certificate}", scenario)
        assert keys(secured) == []
