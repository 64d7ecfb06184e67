"""Which classes have users with a seed."""

import pytest

from kvspill.config import Config
from kvspill.config.groups import Qos, QosClass
from kvspill.errors import UsageError
from kvspill.run.drawn import classes_without_users, refuse_without_users


def test_a_seed_may_draw_nobody_of_a_class() -> None:
    assert classes_without_users(Config(), 4, 42) == ("interactive", "responsive")
    assert classes_without_users(Config(), 100, 42) == ()
    batch_only = Config(slo_classes=("batch",))
    assert classes_without_users(batch_only, 4, 42) == ()


def test_a_question_of_classes_without_users_is_refused_with_what_draws_some() -> None:
    refuse_without_users(Config(num_users=4))
    with pytest.raises(UsageError, match=r"seed 42 draws no interactive user among 4, .*another --seed or"):
        refuse_without_users(Config(num_users=4, slo_classes=("interactive",)))


def test_a_class_without_a_share_has_nobody_with_any_seed() -> None:
    shares = Qos(
        interactive=QosClass(share=0, p95_ms=50, p99_ms=100),
        responsive=QosClass(share=0.5, p95_ms=100, p99_ms=200),
        batch=QosClass(share=0.5, p95_ms=1000, p99_ms=5000),
    )
    config = Config(qos=shares, num_users=1_000_000, slo_classes=("interactive",))
    with pytest.raises(UsageError, match="their share is 0"):
        refuse_without_users(config)
