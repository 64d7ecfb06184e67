"""The nixl backend: files as the files backend keeps them, whose bytes NVIDIA's library moves."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from kvspill.storage.base import Capabilities, Landing, ObjectRef, Source
from kvspill.storage.buffers import DataPlane
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from kvspill.storage.files.jobs import ReadJob, WriteJob
from kvspill.storage.files.place import Place
from kvspill.storage.jobs import Job, Worker
from kvspill.storage.nixl.agent import Agents, Target, started, version
from kvspill.storage.stamps import Identity, block_padded, stamp


class NixlReadJob(ReadJob):
    """Reads an object through NIXL and checks it."""

    __slots__ = ("agents",)

    def __init__(self, place: Place, identity: Identity, nbytes: int, agents: Agents):
        super().__init__(place, identity, nbytes)
        self.agents = agents

    def move(self, worker: Worker) -> None:
        span, site, agent = self.span, self.site, self.agents.mine()
        memory = worker.memory(span.piece_bytes)
        agent.know(memory)
        with agent.file(self.fd, _end_of(self)) as file:
            while (piece := span.take()) is not None:
                _, nbytes = span.extent(piece)
                start_ns = span.begin(piece)
                end_ns = agent.move("READ", memory.ctypes.data, nbytes, file, span.place(piece))
                span.note(piece, start_ns, end_ns, nbytes)
                self.check(memory, piece, site.verify, site.plane.base)


class NixlWriteJob(WriteJob):
    """Writes an object through NIXL, from base data or from the memory that a source lends (E5)."""

    __slots__ = ("agents",)

    def __init__(self, place: Place, identity: Identity, nbytes: int, source: Source | None, agents: Agents):
        super().__init__(place, identity, nbytes, source)
        self.agents = agents

    def move(self, worker: Worker) -> None:
        del worker
        span, plane, agent = self.span, self.site.plane, self.agents.mine()
        agent.know(plane.base)
        with agent.file(self.fd, _end_of(self)) as file:
            while (piece := span.take()) is not None:
                offset, nbytes = span.extent(piece)
                if self.source is not None:
                    self._move_from(self.source, piece, file)
                    continue
                with plane.lease(block_padded(nbytes)) as memory:
                    stamp(memory, span.identity, offset, nbytes)
                    start_ns = span.begin(piece)
                    end_ns = agent.move("WRITE", memory.ctypes.data, nbytes, file, span.place(piece))
                    span.note(piece, start_ns, end_ns, nbytes)

    def _move_from(self, source: Source, piece: int, file: Target) -> None:
        """Write the parts of a piece from where they lie in another tier."""
        span, agent = self.span, self.agents.mine()
        offset, nbytes = span.extent(piece)
        start_ns, at = span.begin(piece), span.place(piece)
        end_ns = start_ns
        for buffer in source.buffers(offset, nbytes):
            part = np.frombuffer(buffer, dtype=np.uint8)
            address = part.ctypes.data
            with agent.lent(address, len(part)):
                end_ns = agent.move("WRITE", address, len(part), file, at)
            at += len(part)
        span.note(piece, start_ns, end_ns, nbytes)


def _end_of(job: ReadJob | WriteJob) -> int:
    """Where the last piece of an object ends in its file."""
    last = max((job.span.place(piece) for piece in range(job.span.piece_count)), default=0)
    return last + job.span.piece_bytes


class NixlBackend(FilesBackend):
    """Objects in files, moved by one of NIXL's plug-ins."""

    def __init__(
        self,
        roots: Sequence[Path],
        options: FilesOptions,
        plugin: str,
        parameters: Mapping[str, str],
        clock_ns: Callable[[], int] = time.monotonic_ns,
        plane: DataPlane | None = None,
    ):
        super().__init__(roots, options, clock_ns, plane)
        self._agents = Agents(plugin, parameters)

    def _prepare(self) -> None:
        started(self._agents, "--nixl-params")
        super()._prepare()

    def deliver_to(self, landing: Landing) -> None:
        """What is read stays in host memory: the library is given nothing else to move it to."""

    @property
    def capabilities(self) -> Capabilities:
        found = super().capabilities
        about = f"NIXL {version()} {self._agents.plugin}; {found.description}"
        return replace(found, name="nixl", description=about)

    def read_job(self, ref: ObjectRef) -> Job:
        return NixlReadJob(self.place, self.identify(ref), ref.nbytes, self._agents)

    def write_job(self, ref: ObjectRef, source: Source | None) -> Job:
        return NixlWriteJob(self.place, self.identify(ref), ref.nbytes, source, self._agents)
