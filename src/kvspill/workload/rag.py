"""Retrieval: documents whose chunks are stored before the load, and requests that read some of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvspill.config import Config
from kvspill.config.checks import last_tier
from kvspill.errors import UsageError
from kvspill.records import HitType, Request, SharedPrefix
from kvspill.texts import size_text
from kvspill.workload.base import Altered, Workload
from kvspill.workload.draws import between, weighted
from kvspill.world import World

LARGE_MODEL_LAYERS = 80

Document = Sequence[SharedPrefix]
"""The chunks of a document, in their order."""


class RagWorkload(Altered):
    """The inner workload, where a share of the requests also reads the best chunks of a document."""

    def __init__(self, config: Config, world: World, inner: Workload, hold_bytes: int):
        super().__init__(inner)
        self._rag = config.rag
        self._world = world
        self._documents = make_documents(config, world)
        self._check_room(config, hold_bytes)

    def session(self, user: int, start_ns: int = 0) -> Iterator[Request]:
        """The user's requests; retrieval draws from a stream of its own, so it shifts nothing else."""
        chance = self._world.rng("rag", user).random
        for request in self._inner.session(user, start_ns):
            if chance() < self._rag.probability:
                document = self._documents[int(chance() * len(self._documents))]
                ranks = [chance() for _ in range(min(self._rag.top_k, len(document)))]
                yield request._replace(chunks=self._retrieve(document, ranks))
            else:
                yield request

    def preload(self) -> Iterator[SharedPrefix]:
        """Ingestion: every chunk of every document."""
        yield from self._inner.preload()
        for document in self._documents:
            yield from document

    def facts(self) -> Mapping[str, Any]:
        chunks = [chunk for document in self._documents for chunk in document]
        return {
            **self._inner.facts(),
            "rag_documents": len(self._documents),
            "rag_chunks": len(chunks),
            "rag_tokens": sum(chunk.tokens for chunk in chunks),
        }

    def _retrieve(self, document: Document, chances: Sequence[float]) -> tuple[SharedPrefix, ...]:
        """Different chunks of a document, one per chance, the best first."""
        left = list(document)
        weights = [1 / (place + 1) if self._rag.distribution == "zipf" else 1.0 for place in range(len(left))]
        found = []
        for chance in chances:
            place = weighted(weights, chance)
            found.append(left.pop(place))
            del weights[place]
        return tuple(found)

    def _check_room(self, config: Config, hold_bytes: int) -> None:
        needed = sum(config.kv.of(chunk.tokens) for document in self._documents for chunk in document)
        if needed > hold_bytes:
            raise UsageError(
                f"--rag-num-docs {config.rag_num_docs}: the documents' KV takes {size_text(needed)}, but "
                f"the {last_tier(config)} tier can hold {size_text(hold_bytes)}; give fewer documents or a "
                "larger tier"
            )


def make_documents(config: Config, world: World) -> Sequence[Document]:
    """Documents of random length within the range for this model, cut into chunks."""
    large = config.model_spec.layers >= LARGE_MODEL_LAYERS
    low, high = config.rag.large_model_document_tokens if large else config.rag.document_tokens
    chance = world.rng("rag", "documents").random
    return [
        _chunks(number, between(low, high, chance()), config.rag.chunk_tokens)
        for number in range(config.rag_num_docs)
    ]


def _chunks(document: int, tokens: int, chunk_tokens: int) -> Document:
    return [
        SharedPrefix(f"rag_d{document}_c{number}", min(chunk_tokens, tokens - start), HitType.USER)
        for number, start in enumerate(range(0, tokens, chunk_tokens))
    ]
