"""Engines on tiny random models, without text: what the tests of whole requests are made with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from firstword.batch import Float32Array
from firstword.config import EngineConfig
from firstword.engine.binding import Numerics
from firstword.engine.engine import Engine
from firstword.engine.model import EngineModel
from firstword.engine.runner import NativeRunner, ReferenceRunner
from firstword.engine.step import StepTime
from firstword.kvcache.disk.record import StoreIdentity
from firstword.kvcache.disk.store import DiskStore
from firstword.kvcache.disk.tier import DiskTier, Pages, PageSizes
from firstword.models.registry import Model as Network
from firstword.models.registry import build_model, model_kv_spec
from firstword.ops.native import NativeOps
from firstword.ops.native_plan import NativeModel
from firstword.ops.reference import ReferenceOps
from firstword.sampling.constraint import TokenConstraint
from firstword.sampling.params import Grammar, SamplingParams
from firstword.trace.recorder import Recorder
from firstword.weights.checkpoint import open_checkpoint


@dataclass
class Model:
    """A model file bound to a backend; engines made from it share the weights.

    `threads`, `isa` and `fused` matter to the compiled backend only.
    """

    path: Path
    numerics: Numerics = "exact"
    kv_dtype: str = "float16"
    threads: int = 2
    isa: str = ""
    fused: bool = True

    def __post_init__(self) -> None:
        self.checkpoint = open_checkpoint(self.path)
        self.config = self.checkpoint.config
        self.spec = model_kv_spec(self.config, self.kv_dtype)
        self.ops: NativeOps | ReferenceOps
        self.network: Network[Float32Array]
        self.native: NativeModel | None = None
        if self.numerics == "native":
            self.ops = ops = NativeOps(self.threads, self.isa)
            recorded = build_model(self.checkpoint, ops, self.spec)
            vocab_size = self.config.vocab_size
            self.native = NativeModel(ops, recorded, self.spec, vocab_size, fused=self.fused)
            self.network = self.native
        else:
            self.ops = ReferenceOps(self.numerics)
            self.network = build_model(self.checkpoint, self.ops, self.spec)

    def runner(self, num_blocks: int) -> NativeRunner | ReferenceRunner:
        """A runner with an empty KV pool."""
        if self.native is not None:
            return NativeRunner(self.native, self.native.ops.new_kv_pool(self.spec, num_blocks))
        return ReferenceRunner(self.network, self.ops.new_kv_pool(self.spec, num_blocks))

    def engine(
        self,
        config: EngineConfig | None = None,
        *,
        num_blocks: int = 400,
        eos: frozenset[int] = frozenset(),
        recorder: Recorder | None = None,
        step_time: StepTime | None = None,
        compile_grammar: Callable[[Grammar], TokenConstraint] | None = None,
    ) -> Engine:
        """A fresh engine with an empty KV pool; invariants are checked after every step."""
        config = config or EngineConfig(debug=True)
        model = EngineModel(
            vocab_size=self.config.vocab_size,
            max_model_len=config.max_model_len or self.config.max_position_embeddings,
            eos_token_ids=eos,
            fingerprint=self.checkpoint.fingerprint,
            kv=self.spec,
            num_blocks=num_blocks,
            step_time=step_time or StepTime(),
            compile_grammar=compile_grammar,
        )
        return Engine(self.runner(num_blocks), model, config, recorder=recorder)

    def engine_with_disk(self, home: Path, num_blocks: int = 400) -> tuple[Engine, DiskTier]:
        """One that keeps blocks in a folder, and to which loading them always seems to pay."""
        slow = self.engine(num_blocks=num_blocks, step_time=StepTime(ms_per_token=1e3))
        runner = self.runner(num_blocks)
        tier = self.tier(home, runner.kv)
        return Engine(runner, slow.model, slow.config, tier=tier), tier

    def tier(self, home: Path, pages: Pages) -> DiskTier:
        """A tier in a folder, of at most 100 MB."""
        digest = blake2b(f"{self.checkpoint.fingerprint}{self.spec}".encode(), digest_size=16)
        sizes = tuple(g.bytes_per_block(self.spec.block_size) for g in self.spec.groups)
        name = (digest.digest(), "tiny", self.numerics)
        store = DiskStore(home, StoreIdentity(*name, sizes, self.spec.block_size), 10**8)
        return DiskTier(store, pages, PageSizes(sizes, self.spec.page_bytes))


def finish(engine: Engine) -> dict[tuple[str, int], list[int]]:
    """Run until nothing is left; tokens by request id and sample index."""
    tokens: dict[tuple[str, int], list[int]] = {}
    while engine.has_work:
        for output in engine.step():
            assert output.error is None
            tokens.setdefault((output.request_id, output.sample_index), []).append(output.token_id)
    return tokens


def answer(
    engine: Engine, prompt: Sequence[int], params: SamplingParams, request_id: str = "it"
) -> list[int]:
    """The tokens of the first sample of one request, run to its end."""
    engine.add_request(request_id, prompt, params)
    return finish(engine)[request_id, 0]
