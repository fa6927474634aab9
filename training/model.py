"""A float32 forward pass in PyTorch of the Llama and Qwen families, with the cache's representation as a parameter.

One forward serves calibration, measurement and training. `plan` holds one action per layer (`training/cache.py`);
without a plan the keys and values are exact. Every context is read at once, and each query sees what it would see
in serving: the pages sealed before its own at the plan's form, its own page exact.
"""

import dataclasses
import hashlib
import math
import struct

import numpy as np
import torch
import torch.nn.functional as F

from training.cache import Plain, Reader, Rotary

# The layer's tensors by GGUF's names, with their shapes in terms of Config.
NORMS = ("attn_norm.weight", "ffn_norm.weight")


@dataclasses.dataclass(frozen=True)
class Config:
    arch: str  # llama, qwen2 or qwen3
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    epsilon: float = 1e-5
    rope_base: float = 1e4

    @property
    def bias(self):
        return self.arch == "qwen2"

    @property
    def qk_norm(self):
        return self.arch == "qwen3"

    @property
    def kv_width(self):
        return self.kv_heads * self.head_dim


class Model:
    """weights: GGUF's tensor names to float32 tensors, rows of Q and K in rotate-half order.

    Channel i of a head's first half and channel i of its second half are one rotary pair, of frequency i.
    """

    def __init__(self, config, weights, frequencies=None, rope_scale=1.0, fingerprint=""):
        if config.arch not in ("llama", "qwen2", "qwen3"):
            raise ValueError(f"no model of architecture '{config.arch}': llama, qwen2, qwen3")
        half = config.head_dim // 2
        if frequencies is None:
            frequencies = config.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
        self.config, self.weights, self.fingerprint = config, weights, fingerprint
        self.frequencies, self.rope_scale = frequencies, rope_scale

    @staticmethod
    def from_gguf(path):
        """Raises ValueError where the file names an architecture that this forward does not know."""
        from gguf import GGUFReader
        from gguf.quants import dequantize

        reader = GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        arch = fields["general.architecture"]

        def get(key, default=None):
            value = fields.get(f"{arch}.{key}", default)
            if value is None:
                raise ValueError(f"{path}: no {arch}.{key}")
            return value

        if f"{arch}.attention.kv_lora_rank" in fields:
            raise ValueError(f"{path}: '{arch}' has latent attention already; there is nothing to convert")
        heads, hidden = get("attention.head_count"), get("embedding_length")
        head_dim = get("attention.key_length", hidden // heads)
        weights = {}
        for tensor in reader.tensors:
            shape = tuple(int(n) for n in reversed(tensor.shape))
            weight = np.array(dequantize(tensor.data, tensor.tensor_type), np.float32).reshape(shape)
            if arch == "llama" and tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
                # GGUF pairs neighbouring rows in this family.
                weight = weight.reshape(shape[0] // head_dim, head_dim // 2, 2, -1).swapaxes(1, 2).reshape(shape)
            weights[tensor.name] = torch.from_numpy(np.ascontiguousarray(weight))
        config = Config(
            arch=arch,
            layers=get("block_count"),
            hidden=hidden,
            heads=heads,
            kv_heads=get("attention.head_count_kv", heads),
            head_dim=head_dim,
            ffn=get("feed_forward_length"),
            vocab=weights["token_embd.weight"].shape[0],
            epsilon=get("attention.layer_norm_rms_epsilon"),
            rope_base=float(get("rope.freq_base", 10000.0)),
        )
        frequencies, scale = rotary_frequencies(config, get, weights.pop("rope_freqs.weight", None))
        return Model(config, weights, frequencies, scale, fingerprint(reader))

    @staticmethod
    def random(config, seed):
        """Weights that give attention and logits a spread like a trained model's; tied embeddings."""
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape, deviation):
            return torch.randn(*shape, generator=generator) * deviation

        c, unit = config, config.hidden**-0.5
        q = c.heads * c.head_dim
        weights = {
            "token_embd.weight": normal(c.vocab, c.hidden, deviation=3 * unit),
            "output_norm.weight": 1 + normal(c.hidden, deviation=0.2),
        }
        for layer in range(c.layers):
            tensors = {name: 1 + normal(c.hidden, deviation=0.2) for name in NORMS}
            for name, rows in (("attn_q", q), ("attn_k", c.kv_width), ("attn_v", c.kv_width)):
                tensors[f"{name}.weight"] = normal(rows, c.hidden, deviation=1.5 * unit)
                if c.bias:
                    tensors[f"{name}.bias"] = normal(rows, deviation=0.5)
            if c.qk_norm:
                for name in ("attn_q_norm.weight", "attn_k_norm.weight"):
                    tensors[name] = 1.4 + normal(c.head_dim, deviation=0.3)
            tensors["attn_output.weight"] = normal(c.hidden, q, deviation=1.5 * q**-0.5)
            tensors["ffn_gate.weight"] = normal(c.ffn, c.hidden, deviation=1.5 * unit)
            tensors["ffn_up.weight"] = normal(c.ffn, c.hidden, deviation=1.5 * unit)
            tensors["ffn_down.weight"] = normal(c.hidden, c.ffn, deviation=1.5 * c.ffn**-0.5)
            weights |= {f"blk.{layer}.{name}": tensor for name, tensor in tensors.items()}
        return Model(config, weights)

    def rms_norm(self, x, weight):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config.epsilon) * weight

    def layer(self, layer, name):
        return self.weights[f"blk.{layer}.{name}"]

    def project(self, layer, h):
        """Queries [B, H, T, D], keys and values [B, G, T, D], as they are before the rotary embedding."""
        c = self.config

        def heads(name, n):
            bias = self.layer(layer, f"{name}.bias") if c.bias else None
            y = F.linear(h, self.layer(layer, f"{name}.weight"), bias)
            return y.view(*h.shape[:2], n, c.head_dim).transpose(1, 2)

        q, k, v = heads("attn_q", c.heads), heads("attn_k", c.kv_heads), heads("attn_v", c.kv_heads)
        if c.qk_norm:
            q = self.rms_norm(q, self.layer(layer, "attn_q_norm.weight"))
            k = self.rms_norm(k, self.layer(layer, "attn_k_norm.weight"))
        return q, k, v

    def reader(self, length, prompt=0, sink_pages=1):
        rotary = Rotary(self.frequencies, self.rope_scale, length)
        return Reader(rotary, self.config.head_dim**-0.5, length, prompt, sink_pages)

    def run_layers(self, x, plan=None, *, first=0, stored=None, reader=None, observe=None):
        """The residual stream [B, T, hidden] after the layers from `first` on.

        plan: an action per layer. stored: what the nearest earlier layer with a cache holds, where `first` may
        inherit. observe(layer, x, q, k, v, stored, out) is called in each layer, before out goes into the stream.
        """
        reader = reader or self.reader(x.shape[1])
        exact = Plain()
        for layer in range(first, self.config.layers):
            action = plan[layer] if plan else exact
            h = self.rms_norm(x, self.layer(layer, "attn_norm.weight"))
            q, k, v = self.project(layer, h)
            out, stored = action.attend(reader, q, k, v, stored)
            if observe:
                observe(layer, x, q, k, v, stored, out)
            out = F.linear(out.transpose(1, 2).flatten(2), self.layer(layer, "attn_output.weight"), action.output_bias)
            x = x + out
            h = self.rms_norm(x, self.layer(layer, "ffn_norm.weight"))
            gate = F.silu(F.linear(h, self.layer(layer, "ffn_gate.weight")))
            up = F.linear(h, self.layer(layer, "ffn_up.weight"))
            x = x + F.linear(gate * up, self.layer(layer, "ffn_down.weight"))
        return x

    def embed(self, tokens):
        return self.weights["token_embd.weight"][tokens]

    def head(self, x):
        """Logits of the residual stream after the last layer."""
        x = self.rms_norm(x, self.weights["output_norm.weight"])
        return F.linear(x, self.weights.get("output.weight", self.weights["token_embd.weight"]))

    def logits(self, tokens, plan=None, *, prompt=0, sink_pages=1):
        """[B, T, vocab] of token ids [B, T]. The first `prompt` queries see no quantised page."""
        reader = self.reader(tokens.shape[1], prompt, sink_pages)
        return self.head(self.run_layers(self.embed(tokens), plan, reader=reader))


def fingerprint(reader):
    """The worker's name for the file (model/gguf/gguf_checkpoint.cc): sizes, header and a sample of each tensor."""
    header = max(t.field.offset + sum(part.nbytes for part in t.field.parts) for t in reader.tensors)
    digest = hashlib.sha256(struct.pack("<QQ", len(reader.data), header))
    digest.update(reader.data[:header].tobytes())
    for tensor in reader.tensors:
        digest.update(reader.data[tensor.data_offset :][: min(tensor.n_bytes, 64)].tobytes())
    return digest.hexdigest()


def rotary_frequencies(config, get, divisors):
    """Angle per position of each pair (float64) and the factor on cos and sin, as the GGUF's metadata ask.

    divisors: llama.cpp's rope_freqs.weight (Llama 3.1's rule), or None. YaRN as in Peng et al. 2023: pairs that turn
    often over the original context keep their frequency, those that turn rarely are stretched, a ramp between.
    """
    half = config.head_dim // 2
    frequencies = config.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
    if divisors is not None:
        return frequencies / divisors.double(), 1.0
    kind = get("rope.scaling.type", "none")
    if kind == "none":
        return frequencies, 1.0
    if kind not in ("linear", "yarn"):
        raise ValueError(f"rotary scaling '{kind}' is unknown: linear, yarn")
    factor = float(get("rope.scaling.factor"))
    if kind == "linear":
        return frequencies / factor, 1.0
    original = float(get("rope.scaling.original_context_length"))

    def pair_that_turns(turns):
        return config.head_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(config.rope_base))

    low = max(math.floor(pair_that_turns(float(get("rope.scaling.yarn_beta_fast", 32.0)))), 0)
    high = min(math.ceil(pair_that_turns(float(get("rope.scaling.yarn_beta_slow", 1.0)))), config.head_dim - 1)
    stretched = ((torch.arange(half, dtype=torch.float64) - low) / max(high - low, 0.001)).clamp(0, 1)
    scale = float(get("rope.scaling.attn_factor", 1.0)) * (0.1 * math.log(factor) + 1.0)
    return frequencies / factor * stretched + frequencies * (1 - stretched), scale
