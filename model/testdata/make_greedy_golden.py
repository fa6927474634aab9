"""Writes smollm2_greedy.json: llama.cpp's greedy continuations, 64 tokens of 50 prompts, on bfloat16 weights
made from the Q4_1 GGUF of SmolLM2-135M-Instruct: every matrix dequantised and rounded to bfloat16, norms as
they are. The rounded values are handed to llama.cpp as float32, whose kernels are fast on every machine and
round nothing further.

  pip install gguf numpy xllamacpp
  python make_greedy_golden.py MODEL.gguf gsm8k_test.jsonl

Prompts are questions of GSM8K's test split in the chat template, in the file's order; those whose answer ends
before 64 tokens are passed over, so every run is a whole one. Ids are given explicitly, so tokenizers play no
part. A run that differs is right when it first differs at a small gap.

  {"model": {"sha256": of MODEL.gguf, "weights": "bf16"},
   "runs": [{"prompt": [ids], "tokens": [ids], "gaps": [best logit minus second, one per token]}]}
Every run has 64 tokens.
"""

import hashlib
import json
import pathlib
import sys
import tempfile

from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize

from llama_cpp import LlamaCpp

PROMPTS, STEPS = 50, 64


def write_rounded(source, target):
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        element = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], element)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        if values.ndim > 1:
            values = dequantize(quantize(values, GGMLQuantizationType.BF16), GGMLQuantizationType.BF16)
        writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    source, text_path = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    questions = [json.loads(line)["question"] for line in text_path.read_text().splitlines()]
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "rounded.gguf"
        write_rounded(source, target)
        llama = LlamaCpp(target)
        for question in questions:
            text = (
                "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
                f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
            )
            prompt = llama.tokenize(text)
            tokens, gaps = llama.greedy(prompt, STEPS)
            if len(tokens) == STEPS:
                runs.append({"prompt": prompt, "tokens": tokens, "gaps": gaps})
            if len(runs) == PROMPTS:
                break
    path = pathlib.Path(__file__).with_name("smollm2_greedy.json")
    model = {"sha256": hashlib.sha256(source.read_bytes()).hexdigest(), "weights": "bf16"}
    lines = ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs)
    path.write_text(f'{{"model":{json.dumps(model)},"runs":[\n{lines}]}}\n')
    gaps = [gap for run in runs for gap in run["gaps"]]
    print(
        path.name,
        path.stat().st_size,
        "bytes;",
        len(gaps),
        "tokens;",
        sum(gap < 0.15 for gap in gaps),
        "gaps under 0.15",
    )


main()
