"""How a layer reads the vectors of a latent anchor: query and value maps of its own over the anchor's channels.

The layer's keys and values are fitted by ridge regression, a token weighing as the squared attention that it receives in
the layer: its rotating pairs from the anchor's rotary channels of the same frequency (a complex matrix, which commutes
with the rotation), then what is left of the keys, at the layer's own mean rotation, and the values from the latent
channels. Everything is absorbed into projections that the layer has anyway, so reading costs nothing more.
Fitted with all channels of the anchor; a smaller d reads the first d of them.
"""

import torch

from training.convert.latent import mean_rotation, real_rebuild, vector_maps


def solve(gram, cross, ridge):
    """argmin of Σ ‖x W - y‖² + ridge · mean energy · ‖W‖², of gram = Σ xᴴx and cross = Σ xᴴy."""
    eye = torch.eye(len(gram), dtype=gram.dtype)
    return torch.linalg.solve(gram + ridge * torch.diagonal(gram).mean() * eye, cross)


def fit(model, layer, pair, conversion, statistics, ridge=1e-4):
    """VectorMaps of `layer` over the vectors that `conversion` makes of its anchor.

    pair: PairStatistics of the two layers. statistics: LayerStatistics of `layer`.
    """
    c, width, rank = model.config, model.config.kv_width, conversion.rank
    half, vector = c.head_dim // 2, len(conversion.down)
    # Moments of (vector, 1) from those of the anchor's (k, v, 1).
    affine = torch.zeros(vector + 1, 2 * width + 1, dtype=torch.float64)
    affine[:-1, :-1], affine[:-1, -1], affine[-1, -1] = conversion.down, conversion.down_bias, 1
    gram, cross = affine @ pair.gram @ affine.mT, affine @ pair.cross

    pairs = (vector - rank) // 2
    rebuild = torch.zeros(c.kv_heads, half, pairs, dtype=torch.complex128)
    for frequency in range(half):
        same = (conversion.frequencies == model.frequencies[frequency]).nonzero()[:, 0]
        if not len(same):
            continue
        real, imaginary = rank + same, rank + pairs + same
        a = torch.arange(c.kv_heads) * c.head_dim + frequency
        b = a + half

        def hermitian(moments, x, y):
            """Σ conj(x) y of complex numbers with (real, imaginary) rows x and columns y of `moments`."""
            (xr, xi), (yr, yi) = x, y
            return torch.complex(
                moments[xr][:, yr] + moments[xi][:, yi], moments[xr][:, yi] - moments[xi][:, yr]
            )

        kept = real, imaginary
        solution = solve(hermitian(gram, kept, kept), hermitian(cross, kept, (a, b)), ridge)  # [same, G]
        rebuild[:, frequency, same] = solution.T
    left = cross[:, :-1].clone()
    left[:, :width] -= gram[:, rank:-1] @ real_rebuild(rebuild).mT
    rows = torch.cat([torch.arange(rank), torch.tensor([vector])])
    solution = solve(gram[rows][:, rows], left[rows], ridge)  # [rank + 1, E]
    return vector_maps(model, layer, mean_rotation(model, statistics), solution[:-1].T, rebuild, solution[-1, width:])
