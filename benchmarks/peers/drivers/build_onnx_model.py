"""Runs in ONNX Runtime GenAI's environment: a checkpoint of floats in, an int4 model out.

Prompts will be token ids, so its tokenizer is an empty one. It imports nothing of this repository.
"""

import json
import sys
from pathlib import Path

import onnxruntime_genai
from tokenizers import Tokenizer
from tokenizers.models import WordLevel


def main() -> None:
    """Build from the folder of the first argument into the second's, with an accuracy level."""
    checkpoint, out, accuracy = sys.argv[1:4]
    Tokenizer(WordLevel({"x": 0}, unk_token="x")).save(f"{checkpoint}/tokenizer.json")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "x"}
    Path(checkpoint, "tokenizer_config.json").write_text(json.dumps(settings))
    sys.path.insert(0, str(Path(onnxruntime_genai.__file__).parent / "models"))
    import builder

    place = ("", checkpoint, out, "int4", "cpu", f"{out}/cache")
    options = builder.parse_extra_options(*place, [f"accuracy_level={accuracy}"])
    builder.create_model(*place, **options)


if __name__ == "__main__":
    main()
