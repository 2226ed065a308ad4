"""Runs in OpenVINO GenAI's environment: a job as JSON in, tokens per second as JSON out.

Prompts are fresh random tokens, since the pipeline keeps what it has read. Times are the
pipeline's own. It imports nothing of this repository.
"""

import json
import random
import sys
from typing import Any

import numpy as np
import openvino
import openvino_genai

FIRST_ID = 100  # control tokens lie below


class Model:
    """A pipeline on the processor."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.pipeline = openvino_genai.LLMPipeline(
            job["model"], "CPU", INFERENCE_NUM_THREADS=job["threads"]
        )
        self.vocab_size = len(self.pipeline.get_tokenizer().get_vocab())

    def generate(self, num_prompt: int, num_output: int) -> Any:
        """Read a fresh prompt and write so many tokens; returns the pipeline's metrics."""
        ids = [random.randrange(FIRST_ID, self.vocab_size) for _ in range(num_prompt)]
        tokens = np.array([ids], dtype=np.int64)
        inputs = openvino_genai.TokenizedInputs(
            openvino.Tensor(tokens), openvino.Tensor(np.ones_like(tokens))
        )
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = num_output
        config.ignore_eos = True
        config.do_sample = False
        return self.pipeline.generate(inputs, config).perf_metrics


def time_case(model: Model, case: dict[str, Any]) -> float:
    """Tokens per second."""
    num_tokens: int = case["num_tokens"]
    if case["kind"] == "prefill":
        metrics = model.generate(num_tokens, 1)
        return num_tokens / (float(metrics.get_ttft().mean) / 1e3)
    metrics = model.generate(max(case["depth"], 1), num_tokens + 1)
    return 1e3 / float(metrics.get_tpot().mean)


def main() -> None:
    """Do the job that the only argument describes."""
    job = json.loads(sys.argv[1])
    model = Model(job)
    for _ in range(2):
        model.generate(64, 4)
    print(json.dumps([time_case(model, case) for case in job["cases"]]))


if __name__ == "__main__":
    main()
