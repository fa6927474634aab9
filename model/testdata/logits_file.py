"""The golden logits' file format, little-endian (read by logits_file.h):

  char[8] "STRIALG2"; u32 vocab; u32 contexts; then for each context:
    u32 n; i32 tokens[n]; then for each of its n positions (the distribution after reading tokens[0..i]):
      u16 k; u16 index[k]; f16 log_p[k]; f16 log_rest[32]

The k likeliest tokens stand alone: as many as hold `mass` of the probability, at least `least`, at most
`most`. All others are kept as 32 sums, by token id modulo 32 (-inf: empty). A KL over these classes is a
lower bound of the one over tokens; what the makers print says how close it is.
"""

import struct

import numpy as np

BUCKETS = 32


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def _log_rest(log_p, index):
    """Log of the probability of each bucket, without the tokens in `index`."""
    p = np.exp(log_p)
    p[index] = 0
    p = np.concatenate([p, np.zeros(-len(p) % BUCKETS)])
    with np.errstate(divide="ignore"):
        return np.log(p.reshape(-1, BUCKETS).sum(axis=0))


def write(path, vocab, contexts, mass, least, most):
    """contexts: pairs of token ids and logits [n, vocab]. Returns the means of k and of the mass held."""
    assert vocab <= 65536
    most = min(most, vocab)
    out = bytearray(b"STRIALG2" + struct.pack("<II", vocab, len(contexts)))
    counts, masses = [], []
    for tokens, logits in contexts:
        out += struct.pack("<I", len(tokens)) + np.asarray(tokens, "<i4").tobytes()
        for log_p in map(log_softmax, logits):
            best = np.argpartition(-log_p, most - 1)[:most]
            best = best[np.argsort(-log_p[best], kind="stable")]
            covered = np.cumsum(np.exp(log_p[best]))
            k = min(max(int(np.searchsorted(covered, mass)) + 1, least), most)
            out += (
                struct.pack("<H", k)
                + best[:k].astype("<u2").tobytes()
                + log_p[best[:k]].astype("<f2").tobytes()
            )
            with np.errstate(over="ignore"):
                out += _log_rest(log_p, best[:k]).astype("<f2").tobytes()
            counts.append(k)
            masses.append(covered[k - 1])
    path.write_bytes(out)
    return float(np.mean(counts)), float(np.mean(masses))


def read(path):
    """vocab and, for each context, its tokens and per position (index, log_p, log_rest)."""
    data = path.read_bytes()
    assert data[:8] == b"STRIALG2"
    vocab, contexts = struct.unpack_from("<II", data, 8)
    at, out = 16, []
    for _ in range(contexts):
        (n,) = struct.unpack_from("<I", data, at)
        tokens = np.frombuffer(data, "<i4", n, at + 4)
        at += 4 + 4 * n
        rows = []
        for _ in range(n):
            (k,) = struct.unpack_from("<H", data, at)
            rows.append(
                (
                    np.frombuffer(data, "<u2", k, at + 2),
                    np.frombuffer(data, "<f2", k, at + 2 + 2 * k),
                    np.frombuffer(data, "<f2", BUCKETS, at + 2 + 4 * k),
                )
            )
            at += 2 + 4 * k + 2 * BUCKETS
        out.append((tokens, rows))
    assert at == len(data)
    return vocab, out


def kl(row, logits):
    """KL(file || softmax(logits)) in nats over the file's classes."""
    index, log_p, log_rest = row
    log_q = log_softmax(logits)
    p = np.concatenate([log_p, log_rest]).astype(np.float64)
    q = np.concatenate([log_q[index], _log_rest(log_q, index)])
    p -= np.log(np.exp(p).sum())  # the halves' rounding
    used = np.isfinite(p)
    return float((np.exp(p[used]) * (p[used] - q[used])).sum())
