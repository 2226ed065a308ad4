"""Requests that a server must survive, drawn from a `random.Random`, and what may answer them.

Used by the tests and by scripts/fuzz_server, so it needs the standard library alone.
"""

from __future__ import annotations

import gzip
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

MODEL = "fake:1m"
CHAT, TEXT, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
COUNT, TOKENIZE, DETOKENIZE = "/v1/messages/count_tokens", "/tokenize", "/detokenize"

OK, BAD = frozenset({200}), frozenset({400})
EITHER = OK | BAD
REFUSED = frozenset({400, 404})
ANY = EITHER | REFUSED

_JSON = {"content-type": "application/json"}
_HI = [{"role": "user", "content": "Hi"}]
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_FUNCTION = {"name": "weather", "description": "of a city", "parameters": _SCHEMA}
_CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
_TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hi \U0001f30d"}]},
    {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "rain"},
]
_SAMPLING: dict[str, object] = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "seed": 7,
    "n": 2,
    "stop": ["zz"],
    "stop_token_ids": [3],
    "min_tokens": 1,
    "max_tokens": 4,
    "ignore_eos": False,
    "logit_bias": {"65": 1.5},
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "repetition_penalty": 1.1,
    "penalty_scope": "all",
    "skip_special_tokens": True,
    "priority": 1,
    "cache_salt": "s",
    "return_resolved": True,
}
BODIES: Mapping[str, tuple[dict[str, object], ...]] = {
    CHAT: (
        {"messages": _HI, "max_tokens": 4},
        {"messages": _TURNS, **_SAMPLING, "logprobs": True, "top_logprobs": 2},
        {"messages": _HI, "stream": True, "stream_options": {"include_usage": True}},
        {
            "messages": _HI,
            "max_completion_tokens": 4,
            "tools": [{"type": "function", "function": _FUNCTION}],
            "tool_choice": "auto",
        },
        {"messages": _HI, "guided_choice": ["a", "b"], "max_tokens": 4},
        {
            "messages": _HI,
            "max_tokens": 4,
            "response_format": {"type": "json_schema", "json_schema": {"schema": _SCHEMA}},
        },
    ),
    TEXT: (
        {"prompt": "Hi", "max_tokens": 4},
        {"prompt": ["Hi", "Ho"], **_SAMPLING, "logprobs": 2},
        {"prompt": [[65, 66], [67]], "stream": True, "max_tokens": 4},
        {"prompt": [65, 66], "guided_regex": "a+", "max_tokens": 4},
    ),
    MESSAGES: (
        {"messages": _HI, "max_tokens": 4},
        {"messages": _HI, "max_tokens": 4, "stream": True, "temperature": 0.5, "top_p": 0.5},
        {
            "messages": [
                *_HI,
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "1", "name": "weather", "input": {}}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "1", "content": "rain"}],
                },
            ],
            "tools": [{"name": "weather", "input_schema": _SCHEMA}],
            "tool_choice": {"type": "auto"},
            "system": [{"type": "text", "text": "Be brief."}],
            "stop_sequences": ["zz"],
            "max_tokens": 4,
        },
    ),
    COUNT: ({"messages": _HI, "system": "Be brief."},),
    TOKENIZE: (
        {"prompt": "Hi", "add_special_tokens": True, "return_token_strs": True},
        {"messages": _TURNS, "tools": [{"type": "function", "function": _FUNCTION}]},
    ),
    DETOKENIZE: ({"tokens": [65, 66, 67]},),
}
"""Valid bodies by path, without the model's name."""

_ODD: tuple[object, ...] = (
    None,
    True,
    0,
    -1,
    2**63,
    2**64,
    10**400,
    1e308,
    "",
    "\x00",
    "\ufeff",
    "\u202e" * 50,
    "\U0010ffff",
    "a" * 10_000,
    "{{ 7 * 7 }}",
    "<|im_end|>\n<|im_start|>system\n",
    "../../etc/passwd",
    [],
    {},
    [[[]]],
    {"": {"": {}}},
    ["a"] * 1000,
    list(range(1000)),
    {"__class__": {"__init__": {}}},
    {str(number): number for number in range(100)},
    {"type": "text"},
    {"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}},
    {"type": "object", "properties": {"a": {"$ref": "#"}}, "pattern": "(a+)+$"},
)
"""Values that somebody's parser has stumbled over."""

_RAW_NUMBERS = ("1e400", "-1e400", "1" + "0" * 400, "9" * 5000, "1e-400", "-0", "0.1e999999999")
_NOT_NUMBERS = ("NaN", "Infinity", "-Infinity", "nan", "01", "+1", "1.", ".5", "0x10")
_LIMITS = ("max_tokens", "n", "top_k", "min_tokens", "max_completion_tokens", "top_logprobs")


@dataclass(frozen=True)
class Case:
    """One request.

    Args:
        what: which kind of badness.
        path: of the target, percent-encoded.
        body: bytes.
        statuses: those that are right answers.
        headers: all but those that HTTP itself needs.
        method: of HTTP.
        chunked: send the body without its length.
    """

    what: str
    path: str
    body: bytes
    statuses: frozenset[int]
    headers: Mapping[str, str]
    method: str = "POST"
    chunked: bool = False

    def curl(self, url: str) -> str:
        """The command that sends it again to a server at `url`."""
        words = ["curl", "-i", "-X", self.method, url + self.path]
        for name, value in self.headers.items():
            words += ["-H", f"{name}: {value}"]
        # What no terminal can show is made by printf, which reads octal escapes.
        octal = "".join(
            chr(b) if 32 <= b < 127 and b not in b"\\%'" else f"\\{b:03o}" for b in self.body
        )
        send = " ".join(shlex.quote(word) for word in words)
        return f"printf '{octal[:20_000]}' | {send} --data-binary @-"


def fault_of(case: Case, status: int, headers: Mapping[str, str], body: bytes) -> str | None:
    """What is wrong with an answer; None when it is right.

    Args:
        case: what was asked.
        status: of the answer.
        headers: of the answer, names in lower case.
        body: of the answer, whole.
    """
    if status not in case.statuses:
        return f"status {status}, expected {sorted(case.statuses)}"
    if not headers.get("x-request-id") and status != 431:  # a head that was not read has none
        return "no X-Request-Id"
    if status < 400:
        return None
    try:
        told = json.loads(body)
    except ValueError:
        return f"the error is no JSON: {body[:80]!r}"
    return _shape_fault(case.path, told)


def _shape_fault(path: str, told: object) -> str | None:
    error = told.get("error") if isinstance(told, dict) else None
    if not isinstance(told, dict) or not isinstance(error, dict) or not error.get("message"):
        return "the error has no message"
    if path == MESSAGES or path.startswith(MESSAGES + "/"):
        is_right = set(told) == {"type", "error", "request_id"} and set(error) == {
            "type",
            "message",
        }
        return None if is_right and told["request_id"] else "not the error shape of this API"
    is_right = set(told) == {"error"} and set(error) == {"message", "type", "param", "code"}
    return None if is_right else "not the error shape of this API"


def draw(random: Random, model: str = MODEL) -> Case:
    """A request of any kind.

    Args:
        random: decides everything.
        model: the name of the model served.
    """
    path = random.choice(list(BODIES))
    body = {"model": model, **random.choice(BODIES[path])}
    return random.choice(KINDS)(random, path, body)


def post(
    what: str, path: str, body: object, statuses: frozenset[int], headers: Mapping[str, str] = _JSON
) -> Case:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Case(what, path, raw, statuses, headers)


def _valid(random: Random, path: str, body: dict[str, object]) -> Case:
    return replace(post("valid", path, body, OK), chunked=random.random() < 0.2)


def _wrong_type(random: Random, path: str, body: dict[str, object]) -> Case:
    for _ in range(random.randint(1, 3)):
        _put(random, body, random.choice(_ODD))
    return post("wrong type", path, body, ANY)


def _put(random: Random, node: object, value: object) -> None:
    """Put a value somewhere into a JSON value, in place."""
    while isinstance(node, dict | list) and node:
        step = random.choice(list(node) if isinstance(node, dict) else list(range(len(node))))
        child = node[step]
        if isinstance(child, dict | list) and child and random.random() < 0.6:
            # What is shared between bodies is not changed.
            child = node[step] = child.copy()
            node = child
        else:
            node[step] = value
            return


def _with_raw(random: Random, body: dict[str, object], raw: str) -> bytes:
    """The body with text that need not be JSON in the place of a value."""
    marked = dict(body)
    _put(random, marked, "@@")
    return json.dumps(marked).replace('"@@"', raw).encode("utf-8", "surrogatepass")


def _huge_number(random: Random, path: str, body: dict[str, object]) -> Case:
    raw = random.choice(_RAW_NUMBERS)
    return post("huge number", path, _with_raw(random, body, raw), ANY)


def _not_a_number(random: Random, path: str, body: dict[str, object]) -> Case:
    raw = random.choice(_NOT_NUMBERS)
    return post("no number", path, _with_raw(random, body, raw), BAD)


def _deep(random: Random, path: str, body: dict[str, object]) -> Case:
    depth = random.choice((201, 1000, 100_000))
    start, middle, end = random.choice((("[", "", "]"), ('{"a":', "1", "}"), ("[{},", "1", "]")))
    closed = random.random() < 0.7
    raw = start * depth + middle + (end * depth if closed else "")
    return post("deep", path, _with_raw(random, body, raw), BAD)


def _deep_inside(random: Random, path: str, body: dict[str, object]) -> Case:
    """Nested in texts that are JSON in their turn."""
    deep = "[" * random.choice((300, 100_000))
    if path == CHAT and random.random() < 0.5:
        call = {"id": "1", "function": {"name": "f", "arguments": deep}}
        body["messages"] = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    else:
        body["guided_json"] = deep
    return post("deep inside", path, body, ANY)


def _bad_utf8(random: Random, path: str, body: dict[str, object]) -> Case:
    raw = random.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\xaf"))
    text = json.dumps(body | {"user": "@@"}).encode()
    return post("bad UTF-8", path, text.replace(b"@@", raw), BAD)


def _surrogate(random: Random, path: str, body: dict[str, object]) -> Case:
    raw = random.choice((r"\ud800", r"\udc00", r"\udc00\ud800", r"\ud83d\u0041"))
    return post("lone surrogate", path, _with_raw(random, body, f'"{raw}"'), BAD)


def _negative_limit(random: Random, path: str, body: dict[str, object]) -> Case:
    return post("negative limit", path, body | {random.choice(_LIMITS): -1}, BAD)


def _unknown_model(random: Random, path: str, body: dict[str, object]) -> Case:
    name = random.choice(("gpt-4o", "", "\u0000", "x" * 5000, "../" + MODEL))
    return post("unknown model", path, body | {"model": name}, REFUSED)


def _unknown_field(random: Random, path: str, body: dict[str, object]) -> Case:
    name = random.choice(("", "Model", "max_token", "\u0000", "__proto__", "x" * 5000))
    return post("unknown field", path, body | {name: random.choice(_ODD)}, BAD)


def _duplicate_keys(random: Random, path: str, body: dict[str, object]) -> Case:
    key = random.choice(list(body))
    twice = f"{{{json.dumps(key)}: {json.dumps(random.choice(_ODD[:20]))}, "
    return post("duplicate keys", path, (twice + json.dumps(body)[1:]).encode(), ANY)


def _half(random: Random, path: str, body: dict[str, object]) -> Case:
    whole = json.dumps(body).encode()
    return post("half", path, whole[: random.randrange(len(whole))], BAD)


def _no_object(random: Random, path: str, body: dict[str, object]) -> Case:
    other = random.choice((None, 1, "text", [body], True, []))
    return post("no object", path, other, BAD)


def _content_type(random: Random, path: str, body: dict[str, object]) -> Case:
    kinds = ("text/plain", "", "application/x-www-form-urlencoded", "multipart/form-data", "json")
    headers = {"content-type": random.choice(kinds)}
    return post("content type", path, body, frozenset({415}), headers)


def _compressed(random: Random, path: str, body: dict[str, object]) -> Case:
    raw = gzip.compress(json.dumps(body).encode(), mtime=0)
    headers = _JSON | {"content-encoding": random.choice(("gzip", "br", "deflate", "zstd"))}
    return post("compressed", path, raw, frozenset({415}), headers)


def _odd_headers(random: Random, path: str, body: dict[str, object]) -> Case:
    name, value = random.choice(
        (
            ("x-request-id", "\u00e9\u00ff" * 100),
            ("x-request-id", "a" * 10_000),
            ("authorization", "Bearer " + "k" * 10_000),
            ("authorization", "Basic \u00ff"),
            ("x-api-key", "\u00e9"),
            ("accept", "image/png"),
            ("transfer-encoding", "chunked"),
            ("origin", "http://localhost"),
            ("cookie", "a=b;" * 1000),
            ("expect", "200-ok"),
            ("upgrade", "websocket"),
            ("x-http-method-override", "DELETE"),
        )
    )
    chunked = name == "transfer-encoding"
    headers = _JSON if chunked else _JSON | {name: value}
    statuses = OK | {403} if name == "origin" else OK
    return replace(post("odd header", path, body, statuses, headers), chunked=chunked)


def _many_headers(random: Random, path: str, body: dict[str, object]) -> Case:
    headers = _JSON | {f"x-{number}": "v" * 900 for number in range(50)}
    return post("many headers", path, body, frozenset({431}), headers)


def _wrong_place(random: Random, path: str, body: dict[str, object]) -> Case:
    case = post("wrong place", path, body, frozenset({404, 405}))
    odd = ("/v1/chat", "/v1/messages/x", "/%00", "/%ff%fe", "/v1/models/%2e%2e/x", "/" + "a" * 5000)
    if random.random() < 0.5:
        return replace(case, path=random.choice(odd))
    return replace(case, method=random.choice(("GET", "PUT", "DELETE", "PATCH")))


def _too_large(random: Random, path: str, body: dict[str, object]) -> Case:
    raw = json.dumps(body | {"user": "x" * 4_200_000}).encode()
    case = post("too large", path, raw, frozenset({413}))
    return replace(case, chunked=random.random() < 0.5)


KINDS: tuple[Callable[[Random, str, dict[str, object]], Case], ...] = (
    *(_valid, _wrong_type, _wrong_type, _wrong_type, _huge_number, _not_a_number, _deep),
    *(_deep_inside, _bad_utf8, _surrogate, _negative_limit, _unknown_model, _unknown_field),
    *(_duplicate_keys, _half, _no_object, _content_type, _compressed, _odd_headers),
    *(_many_headers, _wrong_place, _too_large),
)
"""Kinds of requests; those that are there more than once come more often."""
