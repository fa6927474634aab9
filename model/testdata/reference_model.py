"""A float32 forward pass in plain numpy over the dequantised weights of a GGUF file: llama, qwen2, qwen3.

Written from the papers and Hugging Face's modelling semantics, with nothing shared with Stria's own code: the
oracle of its logits. Whole contexts at once, no cache.
"""

import math

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon)) * weight


class Model:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.fields = {name: field.contents() for name, field in reader.fields.items()}
        self.arch = self.fields["general.architecture"]
        self.layers = self._get("block_count")
        self.hidden = self._get("embedding_length")
        self.heads = self._get("attention.head_count")
        self.kv_heads = self._get("attention.head_count_kv", self.heads)
        self.head_dim = self._get("attention.key_length", self.hidden // self.heads)
        self.epsilon = self._get("attention.layer_norm_rms_epsilon")
        self.w = {}
        for tensor in reader.tensors:
            shape = tuple(int(n) for n in reversed(tensor.shape))
            weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(shape)
            if self.arch == "llama" and tensor.name.split(".")[-2] in ("attn_q", "attn_k"):
                # GGUF pairs neighbouring channels in this family; rotate-half wants the two halves of a head.
                heads = shape[0] // self.head_dim
                weight = weight.reshape(heads, self.head_dim // 2, 2, -1).swapaxes(1, 2).reshape(shape)
            self.w[tensor.name] = weight
        self.vocab = self.w["token_embd.weight"].shape[0]
        self.frequencies, self.rope_scale = self._rope()

    def _get(self, key, default=None):
        value = self.fields.get(f"{self.arch}.{key}", default)
        assert value is not None, key
        return value

    def _rope(self):
        """Angle per position of each channel pair, and the factor on cos and sin."""
        half = self.head_dim // 2
        base = float(self._get("rope.freq_base", 10000.0))
        inverse = base ** (-np.arange(half, dtype=np.float64) / half)
        if "rope_freqs.weight" in self.w:
            return inverse / self.w["rope_freqs.weight"], 1.0
        kind = self._get("rope.scaling.type", "none")
        if kind == "none":
            return inverse, 1.0
        factor = float(self._get("rope.scaling.factor"))
        if kind == "linear":
            return inverse / factor, 1.0
        assert kind == "yarn", kind
        # Peng et al. 2023, as in Hugging Face: pairs that turn often over the original context keep their
        # frequency (extrapolate), those that turn rarely are stretched (interpolate), a linear ramp between.
        original = float(self._get("rope.scaling.original_context_length"))
        beta_fast = float(self._get("rope.scaling.yarn_beta_fast", 32.0))
        beta_slow = float(self._get("rope.scaling.yarn_beta_slow", 1.0))

        def pair_of(turns):
            return self.head_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

        low = max(math.floor(pair_of(beta_fast)), 0)
        high = min(math.ceil(pair_of(beta_slow)), self.head_dim - 1)
        ramp = np.clip((np.arange(half) - low) / max(high - low, 0.001), 0, 1)
        scale = float(self._get("rope.scaling.attn_factor", 1.0)) * (0.1 * math.log(factor) + 1.0)
        return inverse / factor * ramp + inverse * (1 - ramp), scale

    def _rotate(self, x, cos, sin):
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def logits(self, tokens):
        """[len(tokens), vocab] float32."""
        n = len(tokens)
        angles = np.arange(n)[:, None] * self.frequencies[None, :]
        cos = (np.cos(angles) * self.rope_scale).astype(np.float32)[:, None, :]
        sin = (np.sin(angles) * self.rope_scale).astype(np.float32)[:, None, :]
        future = np.triu(np.ones((n, n), bool), 1)
        x = self.w["token_embd.weight"][np.asarray(tokens)]
        for layer in range(self.layers):
            x = x + self._attention(
                layer, rms_norm(x, self._layer(layer, "attn_norm"), self.epsilon), cos, sin, future
            )
            h = rms_norm(x, self._layer(layer, "ffn_norm"), self.epsilon)
            gate = h @ self._layer(layer, "ffn_gate").T
            up = h @ self._layer(layer, "ffn_up").T
            with np.errstate(over="ignore"):
                x = x + (gate / (1 + np.exp(-gate)) * up) @ self._layer(layer, "ffn_down").T
        x = rms_norm(x, self.w["output_norm.weight"], self.epsilon)
        return x @ self.w.get("output.weight", self.w["token_embd.weight"]).T

    def _layer(self, layer, name, kind="weight"):
        return self.w[f"blk.{layer}.{name}.{kind}"]

    def _attention(self, layer, h, cos, sin, future):
        n = h.shape[0]

        def project(name, heads):
            y = h @ self._layer(layer, name).T
            if self.arch == "qwen2":
                y = y + self._layer(layer, name, "bias")
            return y.reshape(n, heads, self.head_dim)

        q, k, v = (
            project("attn_q", self.heads),
            project("attn_k", self.kv_heads),
            project("attn_v", self.kv_heads),
        )
        if self.arch == "qwen3":
            q = rms_norm(q, self._layer(layer, "attn_q_norm"), self.epsilon)
            k = rms_norm(k, self._layer(layer, "attn_k_norm"), self.epsilon)
        q, k = self._rotate(q, cos, sin), self._rotate(k, cos, sin)
        out = np.empty_like(q)
        group = self.heads // self.kv_heads
        for head in range(self.heads):
            scores = q[:, head] @ k[:, head // group].T / np.float32(math.sqrt(self.head_dim))
            scores[future] = -np.inf
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = scores / scores.sum(axis=1, keepdims=True) @ v[:, head // group]
        return out.reshape(n, -1) @ self._layer(layer, "attn_output").T
