"""Texts as token contexts: GSM8K and τ-bench dialogues (JSON lines), joined as eval/texts.h does."""

import json

import torch


def read(path):
    """All lines of a data set as one text."""
    parts = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            if "question" in record:
                parts.append(f"Question: {record['question']}\nAnswer: {record['answer']}\n\n")
            elif "messages" in record:
                parts.append("".join(f"{m['role']}: {m['content'] or ''}\n\n" for m in record["messages"]))
            else:
                raise ValueError(f"{path}: a line has neither 'question' nor 'messages'")
    return "".join(parts)


def tokenizer(model_path):
    """The byte-level BPE of a GGUF file. Raises ValueError for a pre-tokenizer that is not known."""
    from gguf import GGUFReader
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    fields = GGUFReader(model_path).fields
    kind = fields["tokenizer.ggml.pre"].contents()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "smollm")
    qwen2 = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    split = {
        "smollm": pre_tokenizers.Digits(individual_digits=True),
        "qwen2": pre_tokenizers.Split(Regex(qwen2), "isolated"),
        "llama-bpe": pre_tokenizers.Split(Regex(qwen2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)), "isolated"),
    }.get(kind)
    if split is None:
        raise ValueError(f"{model_path}: pre-tokenizer '{kind}' is unknown: smollm, qwen2, llama-bpe")
    vocab = {token: i for i, token in enumerate(fields["tokenizer.ggml.tokens"].contents())}
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    bpe = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    bpe.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    return bpe


def contexts(model_path, path, count, length, skip=0):
    """[count, length] token ids: consecutive stretches of the data set, after `skip` of them.

    Raises ValueError where the text is too short.
    """
    text = read(path)
    want = (skip + count) * length
    ids = tokenizer(model_path).encode(text[: want * 8], add_special_tokens=False).ids
    if len(ids) < want:
        ids = tokenizer(model_path).encode(text, add_special_tokens=False).ids
    if len(ids) < want:
        raise ValueError(f"{path} holds {len(ids)} tokens, not {want}")
    return torch.tensor(ids[skip * length : want]).view(count, length)
