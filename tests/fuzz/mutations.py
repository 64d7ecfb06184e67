"""Turns well-formed inputs into broken ones: bytes cut, doubled and exchanged, values replaced."""

import json
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

ODD_VALUES: list[Any] = [
    None, True, 0, -1, 2**63, 2**70, -(2**70), 0.5, 1e308, -0.0, float("nan"), float("inf"), "", " ", "\0",
    "nan", "-inf", "9" * 400, "é\u202e\ud83d", [], [[]], {}, {"": None}, [None] * 3, "2026-01-01T00:00:00",
    "1e999", int("9" * 400), "\n=1+1", "\x1b[2J\x9b", "\u2066x\u202e", [[[[[[0]]]]]], {"hdr": "eJw="},
]  # fmt: skip
ODD_BYTES = [
    b"", b"\0", b"\xff\xfe", b"\n", b"\r", b",", b":", b"'", b'"', b"{", b"}", b"[", b"]", b"- ", b"&a",
    b"*a", b"!!python/object/apply:os.system [id]", b"nan", b"-1", b"1e999", b"99999999999999999999", b"%",
    b"\xe2\x80\xae", b"\t", b"#", b"|", b"?", b"=", b"--", b"\0--num-users\0", b"\0-1\0",
    b"<<: *a", b"!!timestamp x", b"!!bool x", b"0x" + b"f" * 400, b"1:" * 200 + b"1.5", b"9" * 5000,
    b"[" * 2000, b'{"a":' * 500, b"\x1b[2J", b"\xc2\x9b", b"\xe2\x81\xa6", b"\n=1", b"\x1f\x8b\x08",
]  # fmt: skip

_EDITS = st.tuples(
    st.sampled_from(["cut", "double", "replace", "insert", "end", "flip"]),
    st.floats(0, 1),
    st.integers(0, 40),
    st.sampled_from(ODD_BYTES) | st.binary(max_size=8),
)


def edited(data: bytes, edits: list[tuple[str, float, int, bytes]]) -> bytes:
    """Apply edits to bytes, each at a place given as a share of the length."""
    for kind, share, length, payload in edits:
        at = int(share * len(data))
        span = data[at : at + length]
        rest = data[at + length :]
        if kind == "cut":
            data = data[:at] + rest
        elif kind == "double":
            data = data[:at] + span + span + rest
        elif kind == "replace":
            data = data[:at] + payload + rest
        elif kind == "insert":
            data = data[:at] + payload + data[at:]
        elif kind == "end":
            data = data[:at]
        elif span:
            data = data[:at] + bytes([span[0] ^ 1 << length % 8]) + data[at + 1 :]
    return data


def mangled(seeds: list[bytes]) -> st.SearchStrategy[bytes]:
    """Bytes of one of the seeds after a few edits, or bytes of no sense at all."""
    few = st.lists(_EDITS, min_size=1, max_size=4)
    return st.builds(edited, st.sampled_from(seeds), few) | st.binary(max_size=200)


def retyped(seeds: list[bytes], keys_at_once: int = 3) -> st.SearchStrategy[bytes]:
    """JSON documents (or one per line) in which some values were replaced or left out."""
    return st.builds(
        _retype,
        st.sampled_from(seeds),
        st.lists(
            st.tuples(st.integers(0, 10_000), st.sampled_from(ODD_VALUES) | st.just(_LEFT_OUT)),
            min_size=1,
            max_size=keys_at_once,
        ),
    )


_LEFT_OUT = object()


def _retype(data: bytes, changes: list[tuple[int, Any]]) -> bytes:
    try:
        documents = [json.loads(data)]
    except json.JSONDecodeError:
        documents = [json.loads(line) for line in data.splitlines() if line.strip()]
    for number, value in changes:
        places = list(_places(documents, 4000))
        holder, key = places[number % len(places)]
        if value is _LEFT_OUT:
            del holder[key]
        else:
            holder[key] = deepcopy(value)
        documents = documents or [{}]
    return b"\n".join(json.dumps(document).encode("utf-8", "replace") for document in documents)


def _places(node: Any, most: int) -> list[tuple[Any, Any]]:
    """Every container and key in a document, outer ones first."""
    found: list[tuple[Any, Any]] = []
    waiting = [node]
    while waiting and len(found) < most:
        holder = waiting.pop(0)
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list) and holder[key]:
                waiting.append(holder[key])
    return found
