"""How long the GPU would take to answer: simulated back-pressure on the I/O."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Generation:
    """Time per generated token and per token of prefill."""

    ns_per_token: int
    ns_per_prefill_token: int = 0

    def prefill_ns(self, tokens: int) -> int:
        """Time until the first token; what need not be prefilled, because it was loaded, takes none."""
        return self.ns_per_prefill_token * tokens

    def answer_ns(self, tokens: int) -> int:
        """Time for the tokens of an answer."""
        return self.ns_per_token * tokens
