"""Writes small random models, one per way in which a supported architecture differs, with golden data beside
each:
  random_NAME.gguf         2 layers, bfloat16 matrices, a byte-level BPE vocabulary of 384 with a ChatML template
  random_NAME.logits.bin   the numpy reference's distributions over one context of 160 tokens (format: logits_file.py)
  random_NAME.greedy.json  llama.cpp's greedy continuations: {"runs": [{"prompt": [], "tokens": [], "gaps": []}]}

  pip install gguf numpy tokenizers xllamacpp
  python make_random_models.py gsm8k_test.jsonl

Each model must agree between llama.cpp and the reference before its files are kept. The trained contexts of
the scaled models are short (64), so that 160 positions run far beyond them.
"""

import json
import math
import pathlib
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, RopeScalingType, TokenType
from gguf.quants import quantize
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import logits_file
from llama_cpp import LlamaCpp
from reference_model import Model

HERE = pathlib.Path(__file__).parent
VOCAB, HIDDEN, FFN, LAYERS, CONTEXT, ORIGINAL = 384, 64, 96, 2, 512, 64
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

MODELS = {
    "llama_tied": dict(arch="llama", pre="smollm", heads=4, kv_heads=2, head_dim=16, tied=True),
    "llama3": dict(
        arch="llama", pre="llama-bpe", heads=4, kv_heads=1, head_dim=32, base=5e5, scaling="llama3"
    ),
    "llama_linear": dict(
        arch="llama", pre="smollm", heads=2, kv_heads=2, head_dim=32, tied=True, scaling="linear"
    ),
    "qwen2": dict(arch="qwen2", pre="qwen2", heads=4, kv_heads=2, head_dim=16, base=1e6),
    "qwen2_yarn": dict(
        arch="qwen2", pre="qwen2", heads=4, kv_heads=2, head_dim=16, base=1e4, tied=True, scaling="yarn"
    ),
    "qwen3": dict(arch="qwen3", pre="qwen2", heads=4, kv_heads=2, head_dim=32, base=1e6, tied=True),
}


def llama3_divisors(head_dim, base, factor=8.0, low=1.0, high=4.0):
    """What llama.cpp's converter writes as rope_freqs.weight (Llama 3.1's rule)."""
    divisors = []
    for i in range(head_dim // 2):
        wavelength = 2 * math.pi * base ** (2 * i / head_dim)
        if wavelength < ORIGINAL / high:
            divisors.append(1.0)
        elif wavelength > ORIGINAL / low:
            divisors.append(factor)
        else:
            smooth = (ORIGINAL / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, np.float32)


def train_vocabulary(text):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=SPECIAL,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator([text], trainer)
    state = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].get)
    assert len(tokens) == VOCAB
    return tokens, [merge if isinstance(merge, str) else " ".join(merge) for merge in state["merges"]]


def printable_ascii(token):
    """Of a token in GPT-2's alphabet: a space is U+0120, bytes outside ASCII are other letters."""
    return all(char == "\u0120" or "!" <= char <= "~" for char in token)


def write_model(path, name, spec, vocabulary):
    rng = np.random.default_rng(list(name.encode()))
    writer = GGUFWriter(path, spec["arch"])
    writer.add_name(f"random {name}")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(spec["heads"])
    writer.add_head_count_kv(spec["kv_heads"])
    writer.add_key_length(spec["head_dim"])
    writer.add_value_length(spec["head_dim"])
    writer.add_rope_dimension_count(spec["head_dim"])
    writer.add_rope_freq_base(spec.get("base", 10000.0))
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB)
    scaling = spec.get("scaling")
    if scaling in ("linear", "yarn"):
        writer.add_rope_scaling_type(RopeScalingType(scaling))
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(ORIGINAL)
    tokens, merges = vocabulary
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(spec["pre"])
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token in SPECIAL else TokenType.NORMAL for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)

    # Rows of tokens that must not be generated are small: those that end a text, and pieces of UTF-8
    # characters.
    quiet = np.array([0.1 if token in SPECIAL or not printable_ascii(token) else 1.0 for token in tokens])[
        :, None
    ]

    def matrix(tensor, rows, cols, deviation, row_scale=1.0):
        values = (rng.standard_normal((rows, cols)) * deviation * row_scale).astype(np.float32)
        bf16 = GGMLQuantizationType.BF16
        writer.add_tensor(tensor, quantize(values, bf16), raw_dtype=bf16)

    def vector(tensor, n, mean, deviation):
        writer.add_tensor(tensor, (mean + rng.standard_normal(n) * deviation).astype(np.float32))

    # Deviations that give logits a spread of about 3 and attention scores one of about 2, and let the layers
    # outweigh the embedding, so that the text neither repeats its last token nor is noise.
    q, kv = spec["heads"] * spec["head_dim"], spec["kv_heads"] * spec["head_dim"]
    unit = 1 / math.sqrt(HIDDEN)
    matrix("token_embd.weight", VOCAB, HIDDEN, 3 * unit, quiet)
    if not spec.get("tied"):
        matrix("output.weight", VOCAB, HIDDEN, 3 * unit, quiet)
    vector("output_norm.weight", HIDDEN, 1, 0.2)
    for layer in range(LAYERS):
        prefix = f"blk.{layer}."
        vector(prefix + "attn_norm.weight", HIDDEN, 1, 0.2)
        vector(prefix + "ffn_norm.weight", HIDDEN, 1, 0.2)
        matrix(prefix + "attn_q.weight", q, HIDDEN, 1.5 * unit)
        matrix(prefix + "attn_k.weight", kv, HIDDEN, 1.5 * unit)
        matrix(prefix + "attn_v.weight", kv, HIDDEN, 1.5 * unit)
        matrix(prefix + "attn_output.weight", HIDDEN, q, 1.5 / math.sqrt(q))
        matrix(prefix + "ffn_gate.weight", FFN, HIDDEN, 1.5 * unit)
        matrix(prefix + "ffn_up.weight", FFN, HIDDEN, 1.5 * unit)
        matrix(prefix + "ffn_down.weight", HIDDEN, FFN, 1.5 / math.sqrt(FFN))
        if spec["arch"] == "qwen2":
            for which, n in (("q", q), ("k", kv), ("v", kv)):
                vector(f"{prefix}attn_{which}.bias", n, 0, 0.5)
        if spec["arch"] == "qwen3":
            vector(prefix + "attn_q_norm.weight", spec["head_dim"], 1.4, 0.3)
            vector(prefix + "attn_k_norm.weight", spec["head_dim"], 1.4, 0.3)
    if scaling == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(spec["head_dim"], spec["base"]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def agreement(model, runs):
    """How far llama.cpp's choices are below the reference's best at most, and the gaps' mean difference."""
    worst, differences = 0.0, []
    for run in runs:
        logits = model.logits(run["prompt"] + run["tokens"][:-1])[len(run["prompt"]) - 1 :]
        for row, token, gap in zip(logits, run["tokens"], run["gaps"]):
            second, best = np.sort(row)[-2:]
            worst = max(worst, float(best - row[token]))
            if row.argmax() == token:
                differences.append(abs(float(best - second) - gap))
    return worst, float(np.mean(differences))


def main():
    lines = pathlib.Path(sys.argv[1]).read_text().splitlines()
    text = "\n".join(json.loads(line)["question"] for line in lines)
    vocabulary = train_vocabulary(text)
    rng = np.random.default_rng(7)
    for name, spec in MODELS.items():
        path = HERE / f"random_{name}.gguf"
        write_model(path, name, spec, vocabulary)
        llama = LlamaCpp(path, context=CONTEXT)
        runs = []
        for length in (1, 5, 40, 63, 64, 65, 110, 200):
            prompt = rng.integers(len(SPECIAL), VOCAB, length).tolist()
            tokens, gaps = llama.greedy(prompt, 48)
            runs.append({"prompt": prompt, "tokens": tokens, "gaps": gaps})
        model = Model(path)
        worst, difference = agreement(model, runs)
        distinct = len({token for run in runs for token in run["tokens"]})
        context = rng.integers(len(SPECIAL), VOCAB, 160).tolist()
        logits = model.logits(context)
        golden = HERE / f"random_{name}.logits.bin"
        k, mass = logits_file.write(golden, model.vocab, [(context, logits)], mass=0.999, least=4, most=128)
        greedy = HERE / f"random_{name}.greedy.json"
        greedy.write_text(
            '{"runs":[\n' + ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs) + "]}\n"
        )
        print(
            f"{name}: {path.stat().st_size + golden.stat().st_size + greedy.stat().st_size} bytes; llama.cpp at most "
            f"{worst:.4f} below the reference's best, gaps differ by {difference:.4f}; {distinct} distinct tokens in "
            f"{sum(len(run['tokens']) for run in runs)}; logits' deviation {logits.std():.2f}, {k:.0f} stored ({mass:.4f})"
        )
        assert worst < 0.15 and difference < 0.05, name


main()
