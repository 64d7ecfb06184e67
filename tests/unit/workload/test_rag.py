"""Claims about retrieval: documents of the stated sizes, chunks of one document, and nothing else changed."""

from collections import Counter
from itertools import islice
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import HitType, Request
from kvspill.workload.rag import RagWorkload, make_documents
from kvspill.workload.registry import make_workload
from kvspill.world import World


def workload(hold_bytes: int = 1 << 60, **changes: Any) -> RagWorkload:
    config = Config(enable_rag=True, **changes)
    made = make_workload(config, World(config.seed), hold_bytes)
    assert isinstance(made, RagWorkload)
    return made


def some(made: Any, count: int = 4000) -> list[Request]:
    return [request for user in range(8) for request in islice(made.session(user), count // 8)]


@pytest.mark.parametrize(
    ("model", "low", "high"), [("llama3.1-8b", 4_000, 12_000), ("llama3.1-70b-instruct", 1_024, 4_096)]
)
def test_documents_have_the_sizes_of_the_specification(model: str, low: int, high: int) -> None:
    config = Config(enable_rag=True, model=model, rag_num_docs=200)
    documents = make_documents(config, World(1))
    sizes = [sum(chunk.tokens for chunk in document) for document in documents]
    assert len(documents) == 200
    assert low <= min(sizes) < low * 1.2
    assert high * 0.9 < max(sizes) <= high
    assert all(chunk.tokens == 512 for document in documents for chunk in document[:-1])
    assert all(1 <= document[-1].tokens <= 512 for document in documents)
    keys = [chunk.key for document in documents for chunk in document]
    assert len(keys) == len(set(keys))


def test_every_chunk_is_stored_before_the_load() -> None:
    made = workload()
    stored = list(made.preload())
    assert len(stored) == made.facts()["rag_chunks"]
    assert sum(chunk.tokens for chunk in stored) == made.facts()["rag_tokens"]
    read = {chunk.key for request in some(made) for chunk in request.chunks}
    assert read <= {chunk.key for chunk in stored}


def test_a_tenth_of_the_requests_reads_five_different_chunks_of_one_document() -> None:
    found = some(workload())
    retrieving = [request for request in found if request.chunks]
    assert len(retrieving) / len(found) == pytest.approx(0.1, abs=0.015)
    for request in retrieving:
        keys = [chunk.key for chunk in request.chunks]
        assert len(set(keys)) == 5
        assert len({key.rsplit("_", 1)[0] for key in keys}) == 1
        assert {chunk.hit_type for chunk in request.chunks} == {HitType.USER}


def test_retrieval_changes_nothing_else_of_a_request() -> None:
    plain = make_workload(Config(), World(42), 1 << 60)
    assert [request._replace(chunks=()) for request in some(workload())] == some(plain)


def test_all_of_it_can_be_configured() -> None:
    rag = {"probability": 1.0, "chunk_tokens": 100, "top_k": 3, "document_tokens": [950, 950]}
    made = workload(rag=rag, rag_num_docs=2)
    assert made.facts()["rag_chunks"] == 20
    assert [chunk.tokens for chunk in made.preload()][9] == 50
    assert all(len(request.chunks) == 3 for request in some(made, 80))


def test_a_document_of_fewer_chunks_than_asked_for_is_read_whole() -> None:
    made = workload(rag={"probability": 1.0, "document_tokens": [600, 600]})
    assert {len(request.chunks) for request in some(made, 80)} == {2}


@pytest.mark.parametrize(("distribution", "low", "high"), [("zipf", 3.5, 6.0), ("uniform", 0.85, 1.15)])
def test_first_chunks_are_retrieved_more_often_by_zipf_and_alike_by_uniform(
    distribution: str, low: float, high: float
) -> None:
    rag = {"probability": 1.0, "document_tokens": [5120, 5120], "distribution": distribution, "top_k": 2}
    made = workload(rag=rag, rag_num_docs=1)
    counts = Counter(chunk.key for request in some(made) for chunk in request.chunks)
    assert low < counts["rag_d0_c0"] / counts["rag_d0_c5"] < high


def test_documents_that_the_last_tier_cannot_hold_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        workload(hold_bytes=1 << 30)
    assert str(caught.value) == (
        "--rag-num-docs 10: the documents' KV takes 9.78 GiB, but the storage tier can hold 1.00 GiB; "
        "give fewer documents or a larger tier"
    )
