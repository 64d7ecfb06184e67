"""Counting the tokens of a text: by tiktoken where it is installed, else by a stated estimate."""

import importlib
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from kvspill.errors import UsageError

ENCODING = "cl100k_base"


class TokenCounter(NamedTuple):
    """How texts are counted, by name for the result, and the counting itself: at least 1."""

    name: str
    count: Callable[[str], int]


def make_counter(choice: Literal["auto", "tiktoken", "estimate"], chars_per_token: float) -> TokenCounter:
    """The counter that was asked for; tiktoken counts as installed once its encoding is at hand, too."""
    if choice != "estimate":
        try:
            return TokenCounter(f"tiktoken {ENCODING}", _exact(_encoding()))
        except UsageError:
            if choice == "tiktoken":
                raise
    return TokenCounter(
        f"estimate of {chars_per_token:g} characters per token",
        lambda text: max(1, int(len(text) // chars_per_token)),
    )


def _exact(encoding: Any) -> Callable[[str], int]:
    # Texts may contain what looks like a special token; here it is text.
    return lambda text: max(1, len(encoding.encode_ordinary(text)))


def _encoding() -> Any:
    try:
        return importlib.import_module("tiktoken").get_encoding(ENCODING)
    except ImportError:
        reason = "tiktoken is not installed"
    except Exception as error:
        # Its tables are fetched on first use: without a network that fails in many ways.
        reason = f"tiktoken has no {ENCODING} tables here ({type(error).__name__})"
    raise UsageError(f"sharegpt.token_counter tiktoken: {reason}; install it or use estimate")
