"""What a type of keys and values saves and costs, in words and numbers for people.

Not here: bytes themselves (spec) and the measurement, which `scripts/quality --kv` repeats.
"""

from __future__ import annotations

MEAN_KL_Q8 = {"SmolLM2 135M": 0.0005, "Gemma 3 270M": 0.0013}
"""Mean Kullback-Leibler divergence of next-token predictions, q8 from float16, in nats: windows of
real text, weights and activations in float32 so that nothing else differs."""


def mean_kl(dtype: str) -> dict[str, float]:
    """What answers pay for a type smaller than float16, by the model it was measured on."""
    return MEAN_KL_Q8 if dtype == "q8" else {}


def cost_in_words(dtype: str) -> str | None:
    """The same in words; None for the other types."""
    measured = ", ".join(f"{kl:.4f} for {name}" for name, kl in mean_kl(dtype).items())
    if not measured:
        return None
    return f"measured cost in answers: a mean KL from float16 of {measured} (nats)"
