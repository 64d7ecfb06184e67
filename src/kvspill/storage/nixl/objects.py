"""Objects of a store that NIXL reads and writes: one for each piece, which is all that it puts at once."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from kvspill.storage.base import BackendContext, Capabilities, ObjectRef, Source
from kvspill.storage.fastio import Span
from kvspill.storage.files.place import missing
from kvspill.storage.jobs import Job, SpanJob, Worker
from kvspill.storage.nixl.agent import Agents, started, version
from kvspill.storage.objects.backend import ObjectBackend
from kvspill.storage.objects.jobs import DeleteJob as ObjectDeleteJob
from kvspill.storage.objects.stores import check_endpoint, parse
from kvspill.storage.stamps import Identity, block_padded, stamp

_PIECES_MAX = 10**6
"""Of one entry: the number of a piece stands behind that of the generation."""
_ENDPOINT = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


class _PieceJob(SpanJob):
    """One entry's pieces on their way between memory and objects of their own."""

    __slots__ = ("backend", "entry")

    def __init__(self, backend: "NixlObjectBackend", ref: ObjectRef):
        identity = backend.identify(ref)
        super().__init__(Span(identity, ref.nbytes, backend.stored_bytes(ref.nbytes), backend.plane.io_size))
        self.backend = backend
        self.entry = backend.entry_of(identity)

    def key(self, piece: int) -> str:
        return self.backend.key_of(self.span.identity, piece)


class ReadJob(_PieceJob):
    """Reads the objects of an entry and checks them."""

    __slots__ = ()

    def begin(self) -> int:
        if not self.backend.has(self.entry):
            raise missing(self.span.identity)
        return self.helpers()

    def move(self, worker: Worker) -> None:
        span, agent = self.span, self.backend.agents.mine()
        verify, base = self.backend.verify, self.backend.plane.base
        memory = worker.memory(span.piece_bytes)
        agent.know(memory)
        while (piece := span.take()) is not None:
            _, nbytes = span.extent(piece)
            with agent.object(self.key(piece), nbytes) as there:
                start_ns = span.begin(piece)
                end_ns = agent.move("READ", memory.ctypes.data, nbytes, there, 0)
            span.note(piece, start_ns, end_ns, nbytes)
            self.check(memory, piece, verify, base)


class WriteJob(_PieceJob):
    """Writes the objects of an entry, made here or copied from the tier above."""

    __slots__ = ("source",)

    def __init__(self, backend: "NixlObjectBackend", ref: ObjectRef, source: Source | None):
        super().__init__(backend, ref)
        self.source = source

    def begin(self) -> int:
        return self.helpers()

    def move(self, worker: Worker) -> None:
        span, plane, agent = self.span, self.backend.plane, self.backend.agents.mine()
        own = worker.memory(span.piece_bytes)
        agent.know(own)
        agent.know(plane.base)
        while (piece := span.take()) is not None:
            offset, nbytes = span.extent(piece)
            with plane.lease(block_padded(nbytes)) as memory:
                if self.source is None:
                    stamp(memory, span.identity, offset, nbytes)
                else:
                    memory = own
                    self.source.copy(offset, [memory[:nbytes]])
                with agent.object(self.key(piece), nbytes) as there:
                    start_ns = span.begin(piece)
                    end_ns = agent.move("WRITE", memory.ctypes.data, nbytes, there, 0)
                span.note(piece, start_ns, end_ns, nbytes)

    def end(self) -> None:
        self.source = None
        if self.error is None:
            self.backend.keep(self.entry)


class DeleteJob(ObjectDeleteJob):
    """Removes the objects of an entry. NIXL cannot do that: the client of s3:// does."""

    __slots__ = ("identity", "path_of", "pieces")

    def __init__(self, backend: "NixlObjectBackend", ref: ObjectRef):
        super().__init__(backend, ref)
        self.identity = backend.identify(ref)
        self.entry = backend.entry_of(self.identity)
        self.path_of = backend.path_of_piece
        self.pieces = -(-backend.stored_bytes(ref.nbytes) // backend.plane.io_size)

    def paths(self) -> list[str]:
        return [self.path_of(self.identity, piece) for piece in range(self.pieces)]


class NixlObjectBackend(ObjectBackend):
    """Below the private prefix of a run as s3:// has it, with its lease and its removal."""

    def __init__(self, context: BackendContext, parameters: Mapping[str, str]):
        self._location = parse(context.addresses[0].replace("nixl+obj://", "s3://", 1))
        check_endpoint(self._location, context.options["endpoint"])
        super().__init__(replace(context, addresses=(str(self._location),)))
        self.agents = Agents("OBJ", {**_parameters(self._location.bucket, context.options), **parameters})

    @property
    def capabilities(self) -> Capabilities:
        found = super().capabilities
        about = f"NIXL {version()} OBJ, an object for each piece; {found.description.partition(';')[0]}"
        return replace(found, name="nixl-obj", description=about)

    def _prepare(self) -> None:
        started(self.agents, "--nixl-obj-params")
        super()._prepare()

    def entry_of(self, identity: Identity) -> str:
        return f"{identity.name}-{identity.generation}"

    def path_of_piece(self, identity: Identity, piece: int) -> str:
        """Where a piece lies below the prefix of the address."""
        assert piece < _PIECES_MAX, piece
        number = identity.generation * _PIECES_MAX + piece
        return self.run_of(identity).path(identity._replace(generation=number))

    def key_of(self, identity: Identity, piece: int) -> str:
        """Where it lies in the bucket."""
        return "/".join(filter(None, (self._location.prefix, self.path_of_piece(identity, piece))))

    def has(self, entry: str) -> bool:
        return entry in self._stored

    def read_job(self, ref: ObjectRef) -> Job:
        return ReadJob(self, ref)

    def write_job(self, ref: ObjectRef, source: Source | None) -> Job:
        return WriteJob(self, ref, source)

    def delete_job(self, ref: ObjectRef) -> Job:
        return DeleteJob(self, ref)


def _parameters(bucket: str, options: Mapping[str, Any]) -> dict[str, str]:
    """What the plug-in must know; credentials it finds where Amazon's clients keep them."""
    found = {"bucket": bucket}
    endpoint = options["endpoint"] or next(filter(None, map(os.environ.get, _ENDPOINT)), None)
    if endpoint:
        found |= {"endpoint_override": endpoint, "scheme": urlsplit(endpoint).scheme or "https"}
    if endpoint or options["addressing"] == "path":
        found["use_virtual_addressing"] = "true" if options["addressing"] == "virtual" else "false"
    region = options["region"] or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return {**found, "region": region} if region else found
