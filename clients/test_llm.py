from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from questions import QUESTION, City

LLM = Path(sys.executable).with_name("llm")


@pytest.fixture
def home(tmp_path: Path, v1: str, model: str) -> Path:
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: smol\n"
        f"  model_name: '{model}'\n"
        f"  api_base: {v1}\n"
        f"  supports_schema: true\n"
        f"  supports_tools: true\n",
        encoding="utf-8",
    )
    return tmp_path


def llm(home: Path, *arguments: str) -> str:
    environment = {**os.environ, "LLM_USER_PATH": str(home), "OPENAI_API_KEY": "none"}
    done = subprocess.run(
        [LLM, *arguments], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("how", [(), ("--no-stream",)])
def test_a_prompt(home: Path, how: tuple[str, ...]) -> None:
    assert llm(home, "-m", "smol", "-o", "max_tokens", "24", QUESTION, *how).strip()


def test_a_conversation_goes_on(home: Path) -> None:
    limit = ("-m", "smol", "-o", "max_tokens", "24")
    llm(home, *limit, QUESTION)
    assert llm(home, "-c", *limit, "And in France?").strip()


def test_a_schema(home: Path) -> None:
    schema = json.dumps(City.model_json_schema())
    answer = llm(home, "-m", "smol", "--schema", schema, "-o", "max_tokens", "256", QUESTION)
    assert City.model_validate_json(answer)


def test_a_tool_may_be_called(home: Path) -> None:
    limit = ("-m", "smol", "-o", "max_tokens", "24")
    assert llm(home, *limit, "-T", "llm_version", "--chain-limit", "2", "Say hello.").strip()
