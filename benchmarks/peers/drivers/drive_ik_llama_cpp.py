"""Runs in ik_llama.cpp's environment: a job as JSON in, tokens per second as JSON out.

What llama-bench does: random tokens, logits of the last position only, no sampling, one round
that is not counted. It imports nothing of this repository.
"""

import json
import random
import sys
import time
from typing import Any

from ik_llama_cpp import _ctypes_api as api

BATCH = 2048
MICRO_BATCH = 512  # positions computed at once: llama-bench's choice


class Model:
    """A loaded model with room for one sequence."""

    def __init__(self, job: dict[str, Any], context: int) -> None:
        api.llama_backend_init()
        model_params = api.llama_model_default_params()
        model_params.repack_tensors = job["repack"]
        model_params.use_mmap = not job["repack"]
        model_params.flash_attn = False
        self.model = api.llama_model_load_from_file(job["model"].encode(), model_params)
        if not self.model:
            raise SystemExit("ik_llama.cpp does not load this file")
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, BATCH, MICRO_BATCH
        params.n_threads = params.n_threads_batch = job["threads"]
        params.flash_attn = False
        self.context = api.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit("ik_llama.cpp makes no context for this file")
        self.vocab_size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.batch = api.llama_batch_init(BATCH, 0, 1)
        self.position = 0

    def clear(self) -> None:
        """Forget the sequence."""
        api.llama_kv_cache_clear(self.context)
        self.position = 0

    def compute(self, count: int) -> None:
        """Compute that many random tokens behind those that are there."""
        while count > 0:
            size = min(count, BATCH)
            self._fill(size)
            if api.llama_decode(self.context, self.batch) != 0:
                raise SystemExit("llama_decode failed")
            api.llama_get_logits_ith(self.context, size - 1)
            self.position += size
            count -= size

    def _fill(self, size: int) -> None:
        batch = self.batch
        batch.n_tokens = size
        for i in range(size):
            batch.token[i] = random.randrange(self.vocab_size)
            batch.pos[i] = self.position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = i == size - 1


def time_case(model: Model, case: dict[str, Any]) -> float:
    """Tokens per second."""
    model.clear()
    depth = case["depth"]
    if depth:
        model.compute(depth)
    num_tokens: int = case["num_tokens"]
    start = time.perf_counter()
    if case["kind"] == "prefill":
        model.compute(num_tokens)
    else:
        for _ in range(num_tokens):
            model.compute(1)
    return num_tokens / (time.perf_counter() - start)


def main() -> None:
    """Do the job that the only argument describes."""
    job = json.loads(sys.argv[1])
    cases = job["cases"]
    needed = max((case["depth"] + case["num_tokens"] for case in cases), default=1)
    model = Model(job, context=max(512, needed + 8))
    model.compute(min(MICRO_BATCH, max((case["num_tokens"] for case in cases), default=1)))
    model.clear()
    model.compute(1)
    print(json.dumps([time_case(model, case) for case in cases]))


if __name__ == "__main__":
    main()
