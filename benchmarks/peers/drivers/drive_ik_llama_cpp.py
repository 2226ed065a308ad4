"""Runs in ik_llama.cpp's environment: times cases through the C interface that the package binds.

What llama-bench does: random tokens, logits of the last position only, no sampling. Several
sequences are decoded together, as llama-batched-bench does. It imports nothing of this repository.
"""

import ctypes
import time

from ik_llama_cpp import _ctypes_api as api
from serve import Case, Job, Prompts, serve

BATCH = 2048
MICRO_BATCH = 512  # positions computed at once: llama-bench's choice


class Model:
    """A loaded model with room for some sequences."""

    def __init__(self, job: Job) -> None:
        api.llama_backend_init()
        params = api.llama_model_default_params()
        params.repack_tensors = "repack" in job.settings
        params.use_mmap = not params.repack_tensors
        params.flash_attn = "flash-attention" in job.settings
        model = api.llama_model_load_from_file(job.model.encode(), params)
        if not model:
            raise RuntimeError("ik_llama.cpp does not load this file")
        self.context = api.llama_init_from_model(model, context_params(job))
        if not self.context:
            raise RuntimeError("ik_llama.cpp makes no context for this file")
        vocab_size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
        self.prompts = Prompts(job.text, range(vocab_size))
        self.batch = api.llama_batch_init(BATCH, 0, 1)
        self.kept = (0, 0)  # sequences and their tokens
        self.run([(0, position, True) for position in range(4)])  # a first call does more

    def time(self, case: Case) -> dict[str, object]:
        """Run a case once."""
        self.keep(case.batch, case.depth)
        start = time.perf_counter()
        if case.kind == "prefill":
            self.read(0, case.num_tokens, case.depth)
        else:
            for step in range(case.num_tokens):
                self.run([(i, case.depth + step, True) for i in range(case.batch)])
        seconds = time.perf_counter() - start
        for sequence in range(case.batch):
            remove_from(self.context, sequence, case.depth, -1)
        return {"tokens": case.num_tokens * case.batch, "seconds": seconds}

    def keep(self, batch: int, depth: int) -> None:
        """Every sequence has its first tokens, as they were before, and no others."""
        if self.kept != (batch, depth):
            api.llama_kv_cache_clear(self.context)
            for sequence in range(batch):
                self.read(sequence, depth, 0)
            self.kept = batch, depth

    def read(self, sequence: int, count: int, position: int) -> None:
        """Compute the positions of a prompt; the last one needs logits."""
        tokens = self.prompts.fresh(count)
        for begin in range(0, count, BATCH):
            piece = range(begin, min(begin + BATCH, count))
            rows = [(sequence, position + i, i == count - 1) for i in piece]
            self.run(rows, tokens[piece.start : piece.stop])

    def run(self, rows: list[tuple[int, int, bool]], tokens: list[int] | None = None) -> None:
        """Compute (sequence, position, whether logits are wanted) at once."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, token in enumerate(tokens or self.prompts.fresh(len(rows))):
            batch.token[i] = token
            batch.pos[i] = rows[i][1]
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = rows[i][0]
            batch.logits[i] = rows[i][2]
        if api.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        if rows[-1][2]:
            api.llama_get_logits_ith(self.context, len(rows) - 1)


remove_from = api._lib.llama_kv_cache_seq_rm  # of a sequence, positions from one to another
remove_from.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
remove_from.restype = ctypes.c_bool


def context_params(job: Job) -> api.llama_context_params:
    """Room for the job's sequences, on its threads."""
    params = api.llama_context_default_params()
    params.n_ctx = job.batch * (job.context + 32)
    params.n_batch, params.n_ubatch, params.n_seq_max = BATCH, MICRO_BATCH, job.batch
    params.n_threads = params.n_threads_batch = job.threads
    params.flash_attn = "flash-attention" in job.settings
    return params


if __name__ == "__main__":
    serve(Model)
