"""Runs in OpenVINO GenAI's environment: times cases with its pipeline, by the pipeline's metrics.

Prompts whose reading is timed are fresh, since the pipeline keeps what it has read. It imports
nothing of this repository.
"""

from typing import Any

import numpy as np
import openvino
import openvino_genai
from serve import Case, Job, Prompts, serve

FIRST_ID = 100  # control tokens lie below


class Model:
    """A pipeline on the processor; settings are its properties, as NAME=VALUE."""

    def __init__(self, job: Job) -> None:
        properties = dict(setting.split("=", 1) for setting in job.settings)
        self.pipeline = openvino_genai.LLMPipeline(
            job.model, "CPU", INFERENCE_NUM_THREADS=job.threads, **properties
        )
        vocab_size = len(self.pipeline.get_tokenizer().get_vocab())
        self.prompts = Prompts(job.text, range(FIRST_ID, vocab_size))
        for _ in range(2):
            self.generate(self.prompts.fresh(64), 4)

    def time(self, case: Case) -> dict[str, object]:
        """Run a case once."""
        if case.kind == "prefill":
            metrics = self.generate(self.prompts.fresh(case.num_tokens), 1)
            seconds = float(metrics.get_ttft().mean) / 1e3
        else:
            metrics = self.generate(self.prompts.kept(max(case.depth, 1)), case.num_tokens + 1)
            seconds = case.num_tokens * float(metrics.get_tpot().mean) / 1e3
        return {"tokens": case.num_tokens, "seconds": seconds}

    def generate(self, prompt: list[int], num_output: int) -> Any:
        """Read a prompt and write so many tokens; returns the pipeline's metrics."""
        tokens = np.array([prompt], dtype=np.int64)
        inputs = openvino_genai.TokenizedInputs(
            openvino.Tensor(tokens), openvino.Tensor(np.ones_like(tokens))
        )
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = num_output
        config.ignore_eos = True
        config.do_sample = False
        return self.pipeline.generate(inputs, config).perf_metrics


if __name__ == "__main__":
    serve(Model)
