"""Contract suites for plug-ins, ours and others': what each kind promises, as tests to subclass."""

import pytest

for _suite in ("backends", "declarations", "io_models", "objects", "policies", "traces", "turns"):
    pytest.register_assert_rewrite(f"{__name__}.{_suite}")
