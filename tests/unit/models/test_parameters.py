"""The time to recompute a token follows the model, and says where it comes from."""

import pytest

from kvspill.config import Config
from kvspill.models.parameters import active_billions


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama3.1-8b", 8.0),
        ("llama3.1-70b-instruct", 70.0),
        ("tiny-1b", 1.0),
        ("qwen3-0.6b", 0.6),
        ("qwen3-30b-a3b", 3.0),
        ("gpt-oss-20b", 3.6),
        ("mixtral-8x7b", None),
        ("gemma-4-e2b", None),
        ("deepseek-v3", None),
    ],
)
def test_the_parameters_that_compute_a_token_are_the_active_ones(name: str, billions: float | None) -> None:
    assert active_billions(name) == billions


def test_the_time_to_recompute_follows_the_model_and_names_its_source() -> None:
    small, large = (Config(model=name).recompute for name in ("llama3.1-8b", "llama3.1-70b-instruct"))
    assert small.us_per_token == 183.1
    assert large.us_per_token == pytest.approx(183.1 * 70 / 8, rel=1e-3)
    assert "70B of llama3.1-70b-instruct" in large.source
    assert "12 s for 65,536 tokens" in large.source


def test_a_model_of_unknown_size_says_so_and_a_given_time_is_taken() -> None:
    assert "not known" in Config(model="deepseek-v3").recompute.source
    given = Config(model="deepseek-v3", recompute_us_per_token=90.0).recompute
    assert given == (90.0, "as given by --recompute-us-per-token")
