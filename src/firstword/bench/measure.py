"""Runs cases on a loaded model, as a user's requests run: engine, backend, sampling and text.

Prompts are random tokens, fresh where reading them is timed. Repeats go round all cases, so that
a busy minute of the machine touches all of them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from firstword.bench.cases import Case
from firstword.bench.timing import Span, TimedRunner, span
from firstword.errors import CapacityError
from firstword.llm import LLM
from firstword.sampling.params import SamplingParams

Phase = Literal["prefill", "decode"]
_TEXT_STEP = 97
_PREFIX_TAIL = 32
"""Tokens behind a prefix, so that all of its blocks are full and can be found again."""


@dataclass
class Measurement:
    """The spans of one phase of a case, one for each repeat."""

    case: Case
    phase: Phase
    spans: list[Span] = field(default_factory=list)

    @property
    def speeds(self) -> list[float]:
        """Tokens per second of each repeat, over all sequences."""
        return [span.num_tokens / span.seconds for span in self.spans]


class Bench:
    """Times cases on one model.

    Args:
        llm: the model; nothing else may use it meanwhile.
        text: tokens that prompts are cut from, each from further on; None for random tokens.
    """

    def __init__(self, llm: LLM, text: Sequence[int] | None = None) -> None:
        self._llm = llm
        self._text = text
        self._runner = TimedRunner(llm.engine.runner)
        self._rng = np.random.default_rng(0)
        self._num_prompts = 0
        self._kept_tokens: dict[tuple[str, int], list[int]] = {}

    def run(
        self, cases: Sequence[Case], repeat: int, progress: Callable[[str], None]
    ) -> list[Measurement]:
        """Time each case `repeat` times, after one round that is not counted.

        Args:
            cases: what to time.
            repeat: rounds, at least 1.
            progress: told what happens now.

        Returns:
            In the order of the cases; a chat gives two, its prefill and its decode.

        Raises:
            CapacityError: the KV pool does not hold a case.
        """
        results = {
            (case, phase): Measurement(case, phase) for case in cases for phase in _phases(case)
        }
        for round_number in range(repeat + 1):
            for case in cases:
                if round_number == 0 and case.kind == "chat":
                    continue  # the other cases have warmed up all that it needs
                name = f"round {round_number} of {repeat}" if round_number else "warming up"
                progress(f"{name}: {case.label}")
                for phase, measured in self.time(case).items():
                    if round_number:
                        results[case, phase].spans.append(measured)
        return list(results.values())

    def time(self, case: Case) -> dict[Phase, Span]:
        """Time a case once.

        Returns:
            Its phase, or its two phases.

        Raises:
            CapacityError: the KV pool does not hold it.
        """
        original = self._llm.engine.runner
        self._llm.engine.runner = self._runner
        try:
            return self._phases(case)
        finally:
            self._llm.engine.runner = original

    def _phases(self, case: Case) -> dict[Phase, Span]:
        if case.kind == "prefill":
            return {"prefill": self._prefill(case)}
        if case.kind == "decode":
            return {"decode": self._decode(case)}
        return self._chat(case)

    def _prefill(self, case: Case) -> Span:
        prefix = self._kept("prefix", case.depth)
        if prefix:
            self._generate([prefix + self._kept("tail", _PREFIX_TAIL)], 1)
        fresh = [prefix + self._fresh(case.num_tokens) for _ in range(case.batch)]
        start = self._generate(fresh, 1)
        measured = span(start, self._runner.steps)
        if measured.num_tokens != case.batch * case.num_tokens:
            raise CapacityError(
                f"{case.label}: {measured.num_tokens} tokens were computed instead of "
                f"{case.batch * case.num_tokens}, for the KV pool does not hold the "
                f"{case.depth} before them: choose a smaller depth or batch"
            )
        return measured

    def _decode(self, case: Case) -> Span:
        # The same prompts each time: from the second round on, they come from the prefix cache.
        length = max(case.depth, 1)
        prompts = [self._kept(f"prompt {i}", length) for i in range(case.batch)]
        # Read beforehand, for else the first would be at its end before the last begins.
        self._generate(prompts, 1)
        self._generate(prompts, case.num_tokens + 1)
        return self._full_steps(case)

    def _chat(self, case: Case) -> dict[Phase, Span]:
        start = self._generate([self._fresh(case.depth)], case.num_tokens)
        steps = self._runner.steps
        first = next(i for i, step in enumerate(steps) if step.num_tokens == 1)
        return {
            "prefill": span(start, steps[:first]),
            "decode": span(steps[first - 1].end, steps[first:]),
        }

    def _full_steps(self, case: Case) -> Span:
        """The steps in which every sequence got one token, at most as many as were asked for."""
        steps = self._runner.steps
        # Sequences whose prompts are read one after the other also end one after the other.
        full = [i for i, s in enumerate(steps) if i and s.num_tokens == s.num_seqs == case.batch]
        chosen = full[-case.num_tokens :]
        if not chosen or chosen[-1] - chosen[0] != len(chosen) - 1:
            raise CapacityError(
                f"{case.label}: the KV pool does not hold {case.batch} sequences of "
                f"{case.context} tokens at once: choose a smaller depth or batch"
            )
        return span(steps[chosen[0] - 1].end, [steps[i] for i in chosen])

    def _generate(self, prompts: list[list[int]], num_tokens: int) -> float:
        """Run requests to their ends; the runner then holds their steps. Returns the beginning."""
        self._runner.steps.clear()
        start = self._runner.clock()
        params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
        self._llm.generate(prompts, params)
        return start

    def _fresh(self, count: int) -> list[int]:
        """Tokens that no earlier prompt begins with: the first one alone tells them apart.

        Otherwise the prefix cache would give a token or two of some prompts.
        """
        vocab_size = self._llm.model_config.vocab_size
        if self._text is None:
            tokens: list[int] = self._rng.integers(0, vocab_size, count).tolist()
        else:
            begin = _TEXT_STEP * self._num_prompts
            tokens = [self._text[(begin + i) % len(self._text)] for i in range(count)]
        if tokens:
            tokens[0] = self._num_prompts % vocab_size
            self._num_prompts += 1
        return tokens

    def _kept(self, name: str, count: int) -> list[int]:
        """The same tokens whenever they are asked for by this name and number."""
        key = name, count
        if key not in self._kept_tokens:
            self._kept_tokens[key] = self._fresh(count)
        return self._kept_tokens[key]


def _phases(case: Case) -> tuple[Phase, ...]:
    if case.kind == "chat":
        return ("prefill", "decode")
    return (case.kind,)
