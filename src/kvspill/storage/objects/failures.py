"""What a failed request to an object store means: its kind, one line of words, and whether it may pass."""

import re
from dataclasses import dataclass

NO_BUCKET = "no_bucket"
NOT_FOUND = "ENOENT"
DENIED = "EACCES"
FULL = "ENOSPC"
THROTTLED = "throttled"
SERVER_ERROR = "server_error"
TIMED_OUT = "ETIMEDOUT"
PANICKED = "client_panic"
NO_RANGE = "non-partial response"
"""How the client complains of a store that sends all where a part was asked for."""

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]{1,80})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,160})</Message>")
_REQUEST = re.compile(r"Error performing ([A-Z]+) (\S+)")
_RETRIES = re.compile(r"after (\d+) retries")
_FULL_CODES = ("XMinioStorageFull", "QuotaExceeded", "InsufficientStorage", "NoSpaceLeft", "DiskFull")
_DENIED_CODES = (
    "SignatureDoesNotMatch",
    "InvalidAccessKeyId",
    "ExpiredToken",
    "InvalidToken",
    "AccessDenied",
)
_BY_WORDS = (
    ("Connection refused", "ECONNREFUSED"),
    ("connection refused", "ECONNREFUSED"),
    ("Connection reset", "ECONNRESET"),
    ("connection closed", "ECONNRESET"),
    ("IncompleteMessage", "ECONNRESET"),
    ("BrokenPipe", "ECONNRESET"),
    ("Broken pipe", "ECONNRESET"),
    ("UnexpectedEof", "ECONNRESET"),
    ("end of file before message length", "ECONNRESET"),
    ("TimedOut", TIMED_OUT),
    ("timed out", TIMED_OUT),
    ("Timeout", TIMED_OUT),
    ("dns error", "EHOSTUNREACH"),
    ("unreachable", "EHOSTUNREACH"),
)
_WORDS_MAX = 240


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed."""

    kind: str
    """An errno name where one fits, else a word: throttled, server_error, no_bucket, request_failed or
    client_panic."""
    words: str
    """One line; a store's answers hold no credentials, and what is around them is left out."""
    may_pass: bool
    """Whether the same request may succeed a moment later."""
    retries: int = 0
    """How often the client has tried again before it gave up."""


class RequestError(Exception):
    """A request that failed for good."""

    def __init__(self, failure: Failure):
        super().__init__(failure.words)
        self.failure = failure


def failure_of(error: Exception) -> Failure:
    """What the client's exception means."""
    text = str(error)
    # The client appends a dump of its structures: only there it names the cause of a lost connection.
    said, _, dump = text.partition("\n\nDebug source")
    retries = _RETRIES.search(said)
    status, code = _STATUS.search(said), _CODE.search(said)
    number, name = int(status[1]) if status else 0, code[1] if code else ""
    kind, may_pass = _kind(error, number, name, said, dump)
    return Failure(kind, _words(said, number, name, kind), may_pass, int(retries[1]) if retries else 0)


def _kind(error: Exception, status: int, code: str, said: str, dump: str) -> tuple[str, bool]:
    if code == "NoSuchBucket" or "ContainerNotFound" in said:
        return NO_BUCKET, False
    if status == 507 or any(word in said for word in _FULL_CODES):
        return FULL, False
    if status in (401, 403) or code in _DENIED_CODES:
        return DENIED, False
    if isinstance(error, FileNotFoundError) or status == 404:
        return NOT_FOUND, False
    if status in (429, 503) or "SlowDown" in said:
        return THROTTLED, True
    if status in (408, 500, 502, 504):
        return SERVER_ERROR, True
    if not status:
        for words, kind in _BY_WORDS:
            if words in said or words in dump:
                return kind, True
    return "request_failed", "error sending request" in said


def _words(said: str, status: int, code: str, kind: str) -> str:
    """The request and the answer in one line."""
    request, message = _REQUEST.search(said), _MESSAGE.search(said)
    if request is None:
        return " ".join(said.split())[:_WORDS_MAX]
    answer = " ".join(filter(None, [str(status or ""), code, message[1] if message else ""])) or kind
    return " ".join(f"{request[1]} {request[2].split('?')[0]}: {answer}".split())[:_WORDS_MAX]
