"""The contract suites find what is wrong with a plug-in, and say it."""

import pytest

from kvspill.plugins import Plugin
from kvspill.serving.io_models import InTheOpen, IoOptions
from kvspill.testing.io_models import IoModelSuite


class NoStoredReads(InTheOpen):
    def __init__(self, options: IoOptions): ...


def io_suite(model: type) -> IoModelSuite:
    suite = IoModelSuite()
    suite.plugin = Plugin("wrong", "a model with a defect", model)
    return suite


def test_a_method_that_is_missing_is_named() -> None:
    with pytest.raises(AssertionError, match=r"NoStoredReads has no plan, stored_reads, serve: docs/plugins"):
        io_suite(NoStoredReads).test_what_it_counts_are_numbers_by_name()
