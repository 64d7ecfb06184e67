"""The redis backend keeps the contract of backends on a real server."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from kvspill.storage.backends import redis
from kvspill.storage.base import Backend, ObjectRef
from kvspill.storage.redis.backend import RedisBackend
from kvspill.storage.stamps import identify
from kvspill.testing.backends import BackendSuite, Run
from kvspill.testing.objects import shared_plane
from real.redis_server import RedisServer, redis_server


@pytest.mark.real
class TestRedis(BackendSuite):
    plugin = redis.PLUGIN
    valkey: ClassVar[bool] = False
    server: ClassVar[RedisServer]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _server(cls) -> Iterator[None]:
        with redis_server(valkey=cls.valkey) as server:
            cls.server, cls.addresses = server, (server.address,)
            yield

    def corrupt(self, backend: Backend, ref: ObjectRef, offset: int, tmp_path: Path) -> bool:
        del tmp_path
        assert isinstance(backend, RedisBackend)
        store = backend.store
        identity = identify(ref.key, ref.generation, shared_plane().salt)
        value, at = divmod(offset, store.piece_bytes * store.pieces_per_value)
        key = store.names.value(identity.name, identity.generation, value)
        with self.server.client() as client:
            (found,) = client.getrange(key, at, at)
            client.setrange(key, at, bytes([found ^ 1]))
        return True

    def leftovers(self, tmp_path: Path) -> Sequence[object]:
        del tmp_path
        with self.server.client() as client:
            found: list[object] = client.keys()
            return found


class TestRedisInLongValues(TestRedis):
    """Values of several pieces each."""

    options = MappingProxyType({"value-mib": 8.0, "pipeline": 1})

    @pytest.fixture
    def settings(self) -> Mapping[str, Any]:
        return {"verify": "full"}


@pytest.mark.slow
class TestRedisInShortValues(TestRedis):
    """Many values under way on a connection."""

    options = MappingProxyType({"value-mib": 1 / 16, "pipeline": 16})


@pytest.mark.slow
class TestValkey(TestRedis):
    """A real Valkey server."""

    valkey = True

    def test_it_is_called_by_its_own_name(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            assert backend.capabilities.description.startswith("valkey ")

        run(scenario)
