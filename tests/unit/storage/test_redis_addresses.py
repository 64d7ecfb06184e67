"""An address of Redis shows no secret, whatever its form, and names a database that there can be."""

import json
from pathlib import Path

import pytest

from kvspill.cli.main import main
from kvspill.plugins import without_password

pytest.importorskip("redis")
HOST = "127.0.0.1:1"
COMMANDS = (
    ["run", "--duration", "1", "--cache-dir"],
    ["clean"],
    ["doctor"],
    ["suite", "backends", "--output-dir", "out", "--target", ".", "--target"],
)


def refused(command: list[str], address: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What is said of an address that is refused with exit 2, in one line and before anything is written."""
    before = list(Path().iterdir())
    assert main([*command, address]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert list(Path().iterdir()) == before
    return said.err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("address", "hidden"),
    [
        (f"redis://user:Se Same/x@{HOST}", f"redis://***@{HOST}: a / ends"),
        (f"redis://:Se/Same@{HOST}", f"redis://***@{HOST}: a / ends"),
        (f"rediss://u:a@Se/Same@{HOST}/0", f"rediss://***@{HOST}/0: a / ends"),
        (f"redis://Se/Same@{HOST}", f"redis://***@{HOST}: a / ends"),
        (f"redis://:Se?/Same@{HOST}", f"redis://***@{HOST}: a / ends"),
        ("unix://:Se/Same@/run/r.sock", "unix://***@/run/r.sock: a / ends"),
        (f"s3://me:Se/Same@{HOST}/x", f"s3://***@{HOST}/x: a / ends"),
        (f"rediss://{HOST}?ssl_password=SeSame", f"rediss://{HOST}?ssl_password=***: a secret"),
        (f"rediss://{HOST}?ssl_password=a@SeSame", f"rediss://{HOST}?ssl_password=***: a secret"),
        (f"redis://u:Se@{HOST}/0?db=1&API_Token=SeSame", f"redis://u@{HOST}/0?API_Token=***: a secret"),
        (f"redis://{HOST}?%70assword=SeSame", f"redis://{HOST}?password=***: a secret"),
        ("s3://bucket/x?secret=SeSame", "s3://bucket/x?secret=***: a secret"),
    ],
)
def test_a_secret_that_cannot_be_kept_apart_is_refused_and_shown_nowhere(
    command: list[str],
    address: str,
    hidden: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = refused(command, address, capsys)
    assert hidden in said
    assert "Se" not in said.replace("Secret", "")
    assert ("%2F" in said) is ("a / ends" in said)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("behind", "why"),
    [
        ("/nan", "nan is no database number; write"),
        ("/1.5", "1.5 is no database number; write"),
        ("/3/4", "3/4 is no database number; write"),
        ("/-1", "-1 is no database number; write"),
        ("?db=x", "x is no database number; write"),
        ("?bogus=1", "bogus is unknown in its query; known are db, client_name"),
        ("?ssl_ca_certs=/a", "ssl_ca_certs is unknown in its query; known are db, client_name"),
    ],
)
def test_what_is_no_database_and_what_nobody_knows_is_refused(
    command: list[str],
    behind: str,
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    address = f"redis://{HOST}{behind}"
    assert f"{address}: {why}" in refused(command, address, capsys)


@pytest.mark.parametrize(
    ("address", "plain", "password"),
    [
        ("redis://:a%2Fb@host/0", "redis://host/0", "a/b"),
        ("redis://:a?b=c@host?db=1", "redis://host?db=1", "a?b=c"),
        ("redis://u:p@[::1]:1/0?db=1", "redis://u@[::1]:1/0?db=1", "p"),
        ("redis://host:1?client_name=a@b", "redis://host:1?client_name=a@b", None),
        ("rediss://h?ssl_keyfile=/a/key.pem", "rediss://h?ssl_keyfile=/a/key.pem", None),
        ("unix:///run/a@b.sock?db=1", "unix:///run/a@b.sock?db=1", None),
        ("unix://:p@/run/a.sock", "unix:///run/a.sock", "p"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c", None),
    ],
)
def test_what_is_plain_stays_as_it_is(address: str, plain: str, password: str | None) -> None:
    assert without_password(address) == (plain, password)


def test_the_password_of_a_key_reaches_the_client_by_tls_alone() -> None:
    from kvspill.storage.redis.server import Access

    given = [Access(f"{scheme}://h", key_password="pw").words() for scheme in ("redis", "valkeys")]
    assert ["ssl_password" in json.dumps(words) for words in given] == [False, True]
