"""Writes dequantize_golden.bin: random blocks of every supported type with the floats that the PyPI package
`gguf` makes of them (an independent implementation).   pip install gguf numpy;  python
make_dequantize_golden.py

Format, little-endian, one record per type until the end of the file:
  u32 type (GGUF's number), u32 elements, u32 bytes, bytes of blocks, f32[elements] expected.
Random bytes give scales of every size, NaN and infinities among them; the last blocks of each type have
chosen scales: largest, smallest subnormal, zero, negative.
"""

import pathlib
import struct

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

# Where each type keeps its 16-bit scales within a block.
SCALE_OFFSETS = {
    T.F16: [],
    T.BF16: [],
    T.F32: [],
    T.Q4_0: [0],
    T.Q4_1: [0, 2],
    T.Q5_0: [0],
    T.Q8_0: [0],
    T.Q4_K: [0, 2],
    T.Q5_K: [0, 2],
    T.Q6_K: [208],
}
CHOSEN = [0x7BFF, 0xFBFF, 0x0001, 0x8001, 0x0000, 0x3C00]  # +-65504, +-2^-24, 0, 1


def main():
    rng = np.random.default_rng(20260)
    out = bytearray()
    for kind, offsets in SCALE_OFFSETS.items():
        elements, size = GGML_QUANT_SIZES[kind]
        count = 256 if elements == 1 else 40 if elements == 32 else 12
        blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
        for offset in offsets:
            for i, bits in enumerate(CHOSEN):
                blocks[count - len(CHOSEN) + i, offset : offset + 2] = np.frombuffer(
                    struct.pack("<H", bits), np.uint8
                )
        with np.errstate(all="ignore"):
            if kind == T.F32:
                floats = blocks.reshape(-1).view(np.float32)
            elif kind == T.F16:
                floats = blocks.reshape(-1).view(np.float16).astype(np.float32)
            else:
                floats = dequantize(blocks.reshape(1, -1), kind).reshape(-1)
        assert floats.dtype == np.float32 and floats.size == count * elements
        out += struct.pack("<III", kind.value, floats.size, blocks.size) + blocks.tobytes() + floats.tobytes()
    path = pathlib.Path(__file__).with_name("dequantize_golden.bin")
    path.write_bytes(out)
    print(path, len(out), "bytes")


main()
