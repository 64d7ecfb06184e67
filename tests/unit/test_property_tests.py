"""Property tests fail for what they find, never for how long that took."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@settings(max_examples=3)
@given(st.integers())
def slow_or_not(_number: int) -> None:
    """Stands for every property test that changes some other setting."""


def test_no_property_test_fails_for_slowness() -> None:
    chosen = slow_or_not._hypothesis_internal_use_settings  # type: ignore[attr-defined]
    for found in (settings(), chosen):
        assert found.deadline is None
        assert HealthCheck.too_slow in found.suppress_health_check
