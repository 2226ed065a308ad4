"""Runs this repository's engine as `firstword bench` does, for as long as cases come."""

from __future__ import annotations

from array import array
from pathlib import Path

from serve import Case as Words
from serve import Job, serve

from firstword import LLM
from firstword.bench.cases import Case
from firstword.bench.limits import WorkCounter
from firstword.bench.measure import Bench, Phase
from firstword.config import EngineConfig
from firstword.trace.recorder import NullRecorder


class Model:
    """A loaded model, and what its cases take."""

    def __init__(self, job: Job) -> None:
        config = EngineConfig(max_model_len=job.context + 64, max_num_seqs=2 * job.batch + 2)
        self.llm = LLM(job.model, config=config, threads=job.threads, recorder=NullRecorder())
        self.bench = Bench(self.llm, None if job.text == "-" else _tokens(Path(job.text)))
        self.counter = WorkCounter(self.llm.checkpoint, self.llm.kv_spec)

    def time(self, words: Words) -> dict[str, object]:
        """Run a case once; also tells the work that it is, and the memory that is planned."""
        decodes = words.kind == "decode"
        kind: Phase = "decode" if decodes else "prefill"
        case = Case(kind, words.num_tokens, words.depth, words.batch)
        span = self.bench.time(case)[kind]
        work = self.counter.decode_step(case) if decodes else self.counter.prefill(case)
        return {
            "tokens": span.num_tokens,
            "seconds": span.seconds,
            "steps": span.num_steps if decodes else 1,
            "num_bytes": work.num_bytes,
            "linear_macs": work.linear_macs,
            "narrow_macs": work.narrow_macs,
            "attention_macs": work.attention_macs,
            "outside_share": span.outside_share,
            "weight_bytes": self.counter.weight_bytes,
            "kv_bytes": self.llm.pool.num_bytes,
            "backend": self.llm.backend,
        }


def _tokens(file: Path) -> array[int]:
    tokens = array("i")
    tokens.frombytes(file.read_bytes())
    return tokens


if __name__ == "__main__":
    serve(Model)
