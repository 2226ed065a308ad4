from __future__ import annotations

from benchmarks.serving.compare import WARM_UP, Comparison, Endpoint, Results
from benchmarks.serving.experiments import Experiment, many_figures, prefix_once_figures
from firstword.bench.serving.workloads import Sizes
from tests.bench.serving.scripted_server import ScriptedServer, json_reply, usual

SIZES = Sizes(requests=2, input_tokens=30, output_tokens=3, concurrency=2, prefix_tokens=20)
MANY = Experiment("many", "many", (("distinct", SIZES),), many_figures)
ONCE = Experiment("prefix-once", "once", (("shared-prefix", SIZES),), prefix_once_figures)


def test_servers_take_turns_with_the_same_fresh_prompts() -> None:
    said: list[str] = []
    with ScriptedServer(usual) as one, ScriptedServer(usual) as two:
        results = Results()
        endpoints = [Endpoint("one", one.url, ("key",)), Endpoint("two", two.url)]
        Comparison(endpoints, results, said.append).run([MANY], rounds=2)
        prompts = [
            [r.body["messages"][0]["content"] for r in server.requests if "chat" in r.path]
            for server in (one, two)
        ]
    assert [text.split(": ")[1] for text in said] == ["one", "two", "two", "one"]
    assert sorted(prompts[0]) == sorted(prompts[1]) and len(set(prompts[0])) == len(prompts[0])
    assert len(prompts[0]) == 1 + WARM_UP + 2 * 2
    assert [len(results.rounds["many"][name]) for name in ("one", "two")] == [2, 2]


def test_what_fails_on_one_server_is_a_problem_and_no_end() -> None:
    broken = json_reply({"error": {"message": "no"}}, "500 Broken")
    with ScriptedServer(usual) as good, ScriptedServer(lambda request: (broken,)) as bad:
        results = Results()
        endpoints = [Endpoint("bad", bad.url), Endpoint("good", good.url)]
        Comparison(endpoints, results, lambda text: None).run([MANY, ONCE], rounds=1)
    assert [problem.split(":")[0] for problem in results.problems] == [
        "many, bad",
        "prefix-once, bad",
    ]
    assert list(results.rounds["prefix-once"]) == ["good"]


def test_medians_are_those_of_each_figure() -> None:
    results = Results()
    for a, b in ((1.0, 9.0), (5.0, 7.0), (2.0, 8.0)):
        results.add("many", "one", {"a": a, "b": b})
    assert results.medians("many", "one") == {"a": 2, "b": 8}
    assert results.medians("many", "other") == {}
    report = results.to_dict()
    assert report["medians"] == {"many": {"one": {"a": 2, "b": 8}}}
