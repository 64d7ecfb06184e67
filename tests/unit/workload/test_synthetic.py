"""Claims about the seeds' users: shares, conversations, and what the switches change."""

from collections import Counter
from itertools import islice
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.records import HitType, QoS, Request
from kvspill.workload.synthetic import SyntheticWorkload, prompt_key
from kvspill.world import World


def asked(users: int = 60, each: int = 100, **changes: Any) -> list[Request]:
    config = Config(num_users=users, **changes)
    made = SyntheticWorkload(config, World(config.seed))
    return [request for user in range(users) for request in islice(made.session(user), each)]


def test_a_fifth_of_the_requests_begins_with_one_of_three_prompts_under_shared_keys() -> None:
    found = asked()
    prompts = [request.prefix for request in found if request.prefix is not None]
    assert len(prompts) / len(found) == pytest.approx(0.2, abs=0.015)
    counts = Counter(prompt.key for prompt in prompts)
    assert len(counts) == 3
    assert all(key.startswith("kv_system_") for key in counts)
    assert min(counts.values()) / len(prompts) == pytest.approx(1 / 3, abs=0.04)
    assert {prompt.hit_type for prompt in prompts} == {HitType.SYSTEM}


def test_equal_texts_share_a_key_and_common_phrases_have_their_own_kind() -> None:
    prefix = {
        "probability": 1.0,
        "prompts": [{"text": "a", "tokens": 5}, {"text": "a", "tokens": 5, "kind": "common"}],
    }
    found = {request.prefix for request in asked(4, 50, prefix=prefix)}
    assert {(prompt.key, prompt.hit_type) for prompt in found if prompt} == {
        (prompt_key("a"), HitType.SYSTEM),
        (prompt_key("a", "common"), HitType.COMMON),
    }
    assert prompt_key("a", "common").startswith("kv_common_")


def test_without_prefix_caching_nothing_else_changes() -> None:
    plain = [request._replace(prefix=None, opening=None, history_shared=()) for request in asked()]
    assert asked(disable_prefix_caching=True) == plain


def test_a_turn_knows_the_prompts_of_the_turns_before_it() -> None:
    seen: dict[tuple[int, int], list[int]] = {}
    for request in asked():
        before = seen.setdefault((request.user, request.conversation), [])
        assert list(request.history_shared) == (before if any(before) else [])
        before.append(0 if request.prefix is None else request.prefix.tokens)
    assert any(any(tokens) for tokens in seen.values())


def test_without_multi_turn_every_request_is_a_conversation_of_its_own() -> None:
    found = asked(disable_multi_turn=True)
    assert all(request.turn == 0 and not request.history_tokens for request in found)
    assert [request.context_tokens for request in found] == [request.context_tokens for request in asked()]


def test_a_conversation_ends_with_probability_one_fifth_and_after_fifty_turns_at_most() -> None:
    found = asked(each=400)
    assert sum(request.turn == 0 for request in found) / len(found) == pytest.approx(0.2, abs=0.01)
    longest = asked(conversation_end_probability=0.0, each=120)
    assert max(request.turn for request in longest) == 49


def test_the_opening_of_a_conversation_is_the_prompt_of_its_first_turn() -> None:
    found = asked()
    opening: dict[tuple[int, int], Any] = {}
    for request in found:
        conversation = (request.user, request.conversation)
        if request.turn == 0:
            opening[conversation] = request.prefix
        assert request.opening == opening[conversation]


def test_classes_follow_the_shares() -> None:
    classes = Counter(request.qos for request in asked(users=3000, each=1))
    shares = [classes[qos] / 3000 for qos in QoS]
    assert shares == pytest.approx([0.15, 0.35, 0.5], abs=0.03)


def test_requests_stay_within_a_quarter_and_the_whole_of_their_users_value() -> None:
    ranges = {"chatbot": (256, 1024), "coding": (1024, 4096), "document": (2048, 8192)}
    for request in asked():
        low, high = ranges[request.persona]
        assert low // 4 <= request.context_tokens <= high
