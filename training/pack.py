"""Packs: what a model needs beside its GGUF file to serve latents and inheritance. docs/kaizen.md has the format."""

import hashlib
import json
import pathlib

import torch
from safetensors.torch import load, save

from training.cache import Inherit, Latent
from training.convert.latent import Conversion
from training.depth.maps import AbsorbedMap, FullMap

FORMAT, VERSION = "stria-pack", 1
TENSORS = "pack.safetensors"
MAP_FORMS = {"absorbed": AbsorbedMap, "full": FullMap}
HALVES = ("down", "down_bias", "query", "value_up", "value_bias", "matrix", "bias", "keys", "values")


def _tensors(conversions, maps):
    """Halves, but for frequencies (double) and importance (float)."""
    tensors = {}
    for layer, conversion in enumerate(conversions or []):
        for name, tensor in vars(conversion).items():
            tensors[f"convert.{layer}.{name}"] = tensor.half() if name in HALVES else tensor
    for (anchor, layer), linear in (maps or {}).items():
        for name, tensor in linear.tensors().items():
            tensors[f"map.{anchor}.{layer}.{name}"] = tensor.half()
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ValueError(f"'{name}' holds a number that is not finite as {tensor.dtype}")
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def write(folder, model, record, conversions=None, maps=None, sizes=(), bits=(2, 4, 8, 16)):
    """Writes `folder`/pack.json and pack.safetensors; returns the description.

    conversions: one per layer, all of one rank and d_R. maps: {(anchor, layer): map}. sizes: the d of latent(d, b) that
    the pack offers. record: how the pack was made and what was measured, any JSON.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = save(_tensors(conversions, maps))
    c = model.config
    description = {
        "format": FORMAT,
        "version": VERSION,
        "model": {
            "fingerprint": model.fingerprint,
            "architecture": c.arch,
            "layers": c.layers,
            "hidden": c.hidden,
            "heads": c.heads,
            "kv_heads": c.kv_heads,
            "head_dim": c.head_dim,
        },
        "tensors": {"file": TENSORS, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()},
        "record": record,
    }
    if conversions:
        description["latent"] = {
            "rank": conversions[0].rank,
            "rotary": 2 * len(conversions[0].frequencies),
            "scales": "channel",
            "sink_bits": 16,
            "sizes": sorted(sizes),
            "bits": sorted(bits),
        }
    if maps:
        form = next(name for name, kind in MAP_FORMS.items() if isinstance(next(iter(maps.values())), kind))
        description["inherit"] = {"maps": form, "pairs": sorted(map(list, maps))}
    (folder / TENSORS).write_bytes(data)
    (folder / "pack.json").write_text(json.dumps(description, indent=1) + "\n")
    return description


class Pack:
    def __init__(self, description, conversions, maps):
        self.description, self.conversions, self.maps = description, conversions, maps

    def latent(self, layer, rank, bits):
        latent = self.description.get("latent")
        if latent is None or not 1 <= rank <= latent["rank"]:
            raise ValueError(f"the pack has no latents of {rank} channels")
        return Latent(self.conversions[layer], rank, bits)

    def inherit(self, anchor, layer):
        if (anchor, layer) not in self.maps:
            raise ValueError(f"the pack has no map from layer {anchor} to layer {layer}")
        return Inherit(self.maps[anchor, layer])


def read(folder, model):
    """The Pack of `folder` for `model`. Raises ValueError that says which check failed."""
    folder = pathlib.Path(folder)
    description = json.loads((folder / "pack.json").read_text())
    if description.get("format") != FORMAT or description.get("version") != VERSION:
        raise ValueError(
            f"{folder}: format {description.get('format')!r} version {description.get('version')!r}, not "
            f"{FORMAT!r} version {VERSION}"
        )
    made_for = description["model"]["fingerprint"]
    if made_for != model.fingerprint:
        raise ValueError(f"{folder}: made for the model with fingerprint {made_for}, not {model.fingerprint}")
    data = (folder / description["tensors"]["file"]).read_bytes()
    if hashlib.sha256(data).hexdigest() != description["tensors"]["sha256"]:
        raise ValueError(f"{folder}: the tensors' checksum is wrong")
    parts = {}
    for name, tensor in load(data).items():
        owner, field = name.rsplit(".", 1)
        parts.setdefault(owner, {})[field] = tensor.float() if tensor.dtype == torch.float16 else tensor
    conversions = [
        Conversion(**parts[f"convert.{layer}"])
        for layer in range(model.config.layers)
        if f"convert.{layer}" in parts
    ]
    maps = {}
    for anchor, layer in description.get("inherit", {}).get("pairs", []):
        fields = parts[f"map.{anchor}.{layer}"]
        if description["inherit"]["maps"] == "absorbed":
            fields["keys"] = torch.view_as_complex(fields["keys"].contiguous())
        maps[anchor, layer] = MAP_FORMS[description["inherit"]["maps"]](**fields)
    return Pack(description, conversions, maps)
