"""Contract suites for plug-ins, ours and others': what each kind promises, as tests to subclass."""

import pytest

pytest.register_assert_rewrite("kvspill.testing")
