"""Runs in ONNX Runtime GenAI's environment: times cases on the folder of a model built for it.

It imports nothing of this repository.
"""

import json
import time
from pathlib import Path

import numpy as np
import onnxruntime_genai
from serve import Case, Job, Prompts, serve


class Model:
    """A loaded model; the state of a sequence is kept where only its end is timed."""

    def __init__(self, job: Job) -> None:
        config = onnxruntime_genai.Config(job.model)
        threads = {"intra_op_num_threads": job.threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": threads}}}))
        self.model = onnxruntime_genai.Model(config)
        words = json.loads((Path(job.model) / "genai_config.json").read_text())
        self.prompts = Prompts(job.text, range(100, words["model"]["vocab_size"]))
        self.context = job.context + 8
        self.kept: tuple[int, onnxruntime_genai.Generator] | None = None
        self.time(Case("decode", 4, 64, 1))

    def time(self, case: Case) -> dict[str, object]:
        """Run a case once."""
        if case.kind == "prefill":
            self.kept = None
            generator = self.generator()
            prompt = self.prompts.fresh(case.num_tokens)
            start = time.perf_counter()
            generator.append_tokens(np.array([prompt], dtype=np.int32))
            generator.generate_next_token()
        else:
            generator = self.at(max(case.depth, 1))
            start = time.perf_counter()
            for _ in range(case.num_tokens):
                generator.generate_next_token()
        seconds = time.perf_counter() - start
        return {"tokens": case.num_tokens, "seconds": seconds}

    def at(self, depth: int) -> onnxruntime_genai.Generator:
        """A sequence of so many tokens and one more, for the first one needs no computation."""
        prompt = self.prompts.kept(depth)
        if self.kept is None or self.kept[0] != depth:
            self.kept = depth, self.generator()
        else:
            self.kept[1].rewind_to(depth - 1)
            prompt = prompt[-1:]
        self.kept[1].append_tokens(np.array([prompt], dtype=np.int32))
        self.kept[1].generate_next_token()
        return self.kept[1]

    def generator(self) -> onnxruntime_genai.Generator:
        """One for a sequence that does not end by itself."""
        params = onnxruntime_genai.GeneratorParams(self.model)
        params.set_search_options(
            max_length=self.context, min_length=self.context, do_sample=False, batch_size=1
        )
        return onnxruntime_genai.Generator(self.model, params)


if __name__ == "__main__":
    serve(Model)
