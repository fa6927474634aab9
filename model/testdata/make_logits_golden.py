"""Writes smollm2_logits.bin: next-token logits of SmolLM2-135M-Instruct (Q4_1 GGUF, dequantised) over 4,096
tokens of GSM8K test text, by the numpy reference in float32. Format: logits_file.py.

  pip install gguf numpy xllamacpp
  python make_logits_golden.py MODEL.gguf gsm8k_test.jsonl       (about a minute; the first check runs llama.cpp)

Before it writes, the reference must agree with llama.cpp on the same file. After it has written, it prints
how close the file's KL is to the full one, on a copy of the model with its weights rounded to bfloat16.
"""

import json
import pathlib
import sys

import numpy as np

import logits_file
from llama_cpp import LlamaCpp
from reference_model import Model

CONTEXTS, LENGTH = 8, 512


def check_against_llama_cpp(model, llama, tokens):
    """Greedy from llama.cpp, replayed through the reference: same choice, or a near tie; and similar gaps.
    llama.cpp rounds activations to 8 bits with these weights, so the agreement is not exact."""
    prompt = tokens[:100]
    ids, gaps = llama.greedy(prompt, 64)
    logits = model.logits(prompt + ids[:-1])[len(prompt) - 1 :]
    worst = 0.0
    differences = []
    for row, token, gap in zip(logits, ids, gaps):
        second, best = np.sort(row)[-2:]
        worst = max(worst, float(best - row[token]))
        differences.append(abs(float(best - second) - gap) if row.argmax() == token else 0.0)
    print(
        f"llama.cpp's {len(ids)} greedy tokens: at most {worst:.3f} below the reference's best; "
        f"gaps differ by {np.mean(differences):.3f} on average"
    )
    assert worst < 0.3 and np.mean(differences) < 0.2


def to_bfloat16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32)


def full_kl(p_logits, q_logits):
    log_p, log_q = logits_file.log_softmax(p_logits), logits_file.log_softmax(q_logits)
    return (np.exp(log_p) * (log_p - log_q)).sum(axis=1)


def main():
    model_path, text_path = sys.argv[1:3]
    model, llama = Model(model_path), LlamaCpp(model_path)
    records = [json.loads(line) for line in pathlib.Path(text_path).read_text().splitlines()]
    text = "\n\n".join(f"{record['question']}\n{record['answer']}" for record in records)
    tokens = llama.tokenize(text[:40000])
    assert len(tokens) >= CONTEXTS * LENGTH
    check_against_llama_cpp(model, llama, tokens)

    contexts = []
    for i in range(CONTEXTS):
        ids = tokens[i * LENGTH : (i + 1) * LENGTH]
        contexts.append((ids, model.logits(ids)))
    path = pathlib.Path(__file__).with_name("smollm2_logits.bin")
    k, mass = logits_file.write(path, model.vocab, contexts, mass=0.985, least=4, most=192)
    nll = np.concatenate(
        [-logits_file.log_softmax(logits[:-1])[np.arange(LENGTH - 1), ids[1:]] for ids, logits in contexts]
    )
    print(
        f"{path.name}: {path.stat().st_size} bytes, {CONTEXTS * LENGTH} positions, {k:.0f} tokens each that hold "
        f"{mass:.4f} of the mass, perplexity {np.exp(np.mean(nll)):.3f}"
    )

    model.w = {name: to_bfloat16(weight) if weight.ndim == 2 else weight for name, weight in model.w.items()}
    ids, exact = contexts[0]
    rounded = model.logits(ids)
    rows = logits_file.read(path)[1][0][1]
    from_file = np.mean([logits_file.kl(row, logits) for row, logits in zip(rows, rounded)])
    print(
        f"bfloat16 weights, first context: KL {full_kl(exact, rounded).mean():.3e}, from the file {from_file:.3e}"
    )


main()
