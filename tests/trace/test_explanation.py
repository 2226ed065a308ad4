from __future__ import annotations

import json

from firstword.trace.explanation import (
    CachePart,
    Computations,
    Explanation,
    KVPart,
    PrefillPart,
    PromptPart,
    PromptToken,
    SourcesPart,
    StrategyPart,
    TimelinePart,
)


def test_ratio_of_computations() -> None:
    assert Computations(1000, 500_500).ratio == 500.5
    assert Computations(0, 0).ratio == 1.0


def test_an_explanation_becomes_json_in_the_order_of_telling() -> None:
    explanation = Explanation(
        request_id="r",
        sample_index=0,
        model="m",
        backend="reference",
        num_threads=2,
        load_ms=10.0,
        prompt=PromptPart("hé", (PromptToken(0, 7, "hé"),), 1, 1, 0, 0.5),
        prefill=PrefillPart(0, SourcesPart(), None, 1, 1e6, 3.0, ()),
        kv=KVPart((), 4, 2, 2.0, "float16", 128, 128, 256, 1),
        decode=(),
        cache=CachePart(1, 1, Computations(1, 1), Computations(1, 1), None),
        strategy=StrategyPart("greedy: the largest logit", 2**64 - 1, 1),
        timeline=TimelinePart(4.0, None, (), None, (), (), 0),
        finish_reason=None,
        stop_reason=None,
        num_missing_tokens=0,
    )
    told = json.loads(json.dumps(explanation.to_dict(), allow_nan=False))
    assert [name for name in told if isinstance(told[name], dict | list)] == [
        "prompt",
        "prefill",
        "kv",
        "decode",
        "cache",
        "strategy",
        "timeline",
    ]
    assert told["prompt"]["tokens"] == [{"position": 0, "token_id": 7, "text": "hé"}]
    assert told["strategy"]["seed"] == 2**64 - 1
