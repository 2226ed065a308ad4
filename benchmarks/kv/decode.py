"""One process that reads prompts and writes long answers, and says how fast; not whom it races.

    python -m benchmarks.kv.decode MODEL --disk 0
    python -m benchmarks.kv.decode MODEL --alternate 30

The experiment `overhead` runs it again and again, with and without blocks kept on the disk; or
once, with requests that take turns to be kept.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_WARM_UP_TOKENS = 16


@dataclass(frozen=True)
class Run:
    """What a process measured of one round of requests.

    Args:
        prefill: tokens per second until all prompts are read.
        decode: tokens per second, the sum of what each sequence has after its first token.
        peak_bytes: most that was resident, files mapped included.
    """

    prefill: float
    decode: float
    peak_bytes: int


def run(options: argparse.Namespace) -> list[Run]:
    """Load the model, warm up, and measure.

    Returns:
        One round; with `alternate` twice as many, kept on the disk and not. Who goes first changes.
    """
    from firstword import LLM, RequestOptions, SamplingParams
    from firstword.config import EngineConfig

    config = EngineConfig(memory_bytes=options.memory, kv_disk_bytes=options.disk)
    llm = LLM(options.model, config=config, threads=options.threads)
    drawn = random.Random(options.seed)

    def prompts(length: int) -> list[list[int]]:
        high = llm.model_config.vocab_size
        return [[drawn.randrange(high) for _ in range(length)] for _ in range(options.batch)]

    def params(length: int) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)

    def measured(store: bool) -> Run:
        kept = RequestOptions(store=store)
        outputs = llm.generate(prompts(options.prompt), params(options.generate), kept)
        speeds = [output.metrics.tokens_per_second(options.generate) or 0.0 for output in outputs]
        last = max(output.metrics.ttft or 0.0 for output in outputs)
        return Run(options.batch * options.prompt / last, sum(speeds), _peak())

    llm.generate(prompts(_WARM_UP_TOKENS), params(_WARM_UP_TOKENS))
    if not options.alternate:
        return [measured(store=True)]
    runs = []
    for number in range(options.alternate):
        by_store = {store: measured(store) for store in (number % 2 > 0, number % 2 == 0)}
        runs += [by_store[True], by_store[False]]
    return runs


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line's words."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("model", help="a file or a name")
    add("--disk", type=int, default=None, help="bytes of KV blocks on the disk; 0: none")
    add("--memory", type=int, default=None, help="bytes of the process")
    add("--prompt", type=int, default=512, help="tokens to read")
    add("--generate", type=int, default=384, help="tokens to write")
    add("--batch", type=int, default=1, help="sequences")
    add("--threads", type=int, default=None)
    add("--alternate", type=int, default=0, help="pairs of rounds, kept on the disk and not")
    add("--seed", type=int, default=0, help="of the prompts")
    return parser.parse_args(words)


if __name__ == "__main__":
    print(json.dumps([asdict(measured) for measured in run(parse_arguments())]))
