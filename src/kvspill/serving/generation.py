"""How long the GPU would take to answer: simulated back-pressure on the I/O."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Generation:
    """Time per generated token and per token of prefill."""

    ns_per_token: int
    ns_per_prefill_token: int = 0

    def duration_ns(self, generated_tokens: int, prefill_tokens: int) -> int:
        """Time for a request; what need not be prefilled, because it was loaded, takes none."""
        return self.ns_per_token * generated_tokens + self.ns_per_prefill_token * prefill_tokens
