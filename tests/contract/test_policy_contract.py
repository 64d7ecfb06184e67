"""Our eviction policies keep the contract that is published for those of others."""

from dataclasses import replace

import pytest

from kvspill.cache.policies import EvictionPolicy, PolicyContext
from kvspill.cache.policies.s3fifo import S3FifoPolicy
from kvspill.config.load import load_config
from kvspill.errors import UsageError
from kvspill.plugins import Kind, Plugin, find_all, find_plugins
from kvspill.testing.policies import PolicySuite

for _name, _plugin in find_plugins(Kind.POLICY).plugins.items():
    _class = f"Test{_name.title().replace('-', '')}"
    globals()[_class] = type(_class, (PolicySuite,), {"plugin": _plugin})


def test_the_suite_finds_a_policy_that_loses_what_was_used() -> None:
    """A contract that nothing can break proves nothing."""

    class Forgetful:
        def __init__(self) -> None:
            self.keys: dict[str, None] = {}

        def insert(self, key: str, nbytes: int, parent: str | None = None) -> None:  # noqa: ARG002
            self.keys[key] = None

        def touch(self, key: str) -> None:
            self.keys.pop(key, None)

        def remove(self, key: str, evicted: bool) -> None:  # noqa: ARG002
            self.keys.pop(key, None)

        def victim(self, evictable: object) -> str | None:  # noqa: ARG002
            return next(iter(self.keys), None)

        def __len__(self) -> int:
            return len(self.keys)

    def make(_context: PolicyContext) -> EvictionPolicy:
        return Forgetful()

    suite = PolicySuite()
    suite.plugin = Plugin("forgetful", "forgets what was used", make=make)
    with pytest.raises(AssertionError):
        suite.test_only_what_may_go_is_named()
    with pytest.raises(AssertionError):
        suite.test_a_victim_that_is_used_instead_of_removed_can_be_named_again()


def test_a_plain_policy_of_another_package_is_refused_by_name_where_blocks_need_leaves_first() -> None:
    plain = Plugin("plain", "knows no tree", make=lambda _context: None, origin="vendor 1.0")
    ours = find_all()
    policies = replace(ours[Kind.POLICY], plugins={**ours[Kind.POLICY].plugins, "plain": plain})
    declared = {**ours, Kind.POLICY: policies}
    wanted = {"eviction_policy": ("--eviction-policy", "plain")}
    assert load_config(wanted, declared=declared).eviction_policy == "plain"
    with pytest.raises(UsageError, match="--eviction-policy plain: cannot evict the end of a chain"):
        load_config(wanted | {"io_model": ("--io-model", "prefix")}, declared=declared)


def test_s3_fifo_names_a_victim_where_all_of_its_main_queue_is_in_use() -> None:
    """What it moves there from the small queue during its search may go, too; it named nothing."""
    policy = S3FifoPolicy(100)
    for key in "ab":
        policy.insert(key, 1)
        policy.touch(key)
    assert policy.victim(lambda key: key == "a") == "a"
    assert policy.victim(lambda key: key == "b") == "b"
