#!/usr/bin/env python3
"""Makes chat.jsonl: conversations as ids, by Jinja over the models' own templates and Hugging Face `tokenizers`.

Message contents hold no control tokens, since Hugging Face would read them as such. Templates: the SmolLM2 file's own,
the one of ggml-vocab-qwen2, short ones spelled here, and models/templates/ of llama.cpp (each line keeps its template).
Needs: pip install gguf tokenizers jinja2.
Run: python3 make_chat_golden.py SMOLLM2.gguf LLAMA_BPE.gguf QWEN2.gguf TEMPLATES_FOLDER
"""
import json
import sys

from gguf import GGUFReader
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import normalizers, pre_tokenizers

import make_golden as golden

LLAMA3 = ("{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
          "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
          "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
          "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
          "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def say(*turns):
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[t[0]], "content": t[1:]} for t in turns]


CONVERSATIONS = [
    say("uHello!"),
    say("sYou are terse.", "uHello!"),
    say("uWhat is 2 + 2?", "aIt is 4.", "uAnd 3 + 4?"),
    say("s", "u"),
    say("u\n\nleading newlines\n\n", "a \t spaces around \u00a0\u3000", "u\u2003x\x1f\n"),
    say("sOne", "uTwo", "sThree, in the middle", "uFour"),
    say("uGrüße aus Köln 🙂", "aé decomposed: e\u0301", "u中文"),
    say("aI begin."),
    say("u1", "a<think>\nI think\nso.\n</think>\n\nAnswer", "u2"),
    say("u1", "a<think>\nI think\nso.\n</think>\n\nAnswer"),
    say("u1", "aAnswer</think>\n\nand <think>more</think>\n\nrest"),
    say("u1", "aplain", "a<think>\n\n</think>\n\nAnswer", "alast"),
    say("u1", "a<think>one</think>two", "u<tool_response>\n3\n</tool_response>", "a\n\n<think>\nfour\n</think>\nfive"),
    say("u<tool_response>a</tool_response>", "a<think>b</think>c", "ad"),
]


def main(smollm2, llama_bpe, qwen2, folder):
    vocabularies = {
        "smollm2": golden.load(smollm2, pre_tokenizers.Sequence([pre_tokenizers.Digits(True), golden.byte_level(True)])),
        "llama3": golden.load(llama_bpe, golden.split(golden.LLAMA3), ignore_merges=True),
        "qwen2": golden.load(qwen2, golden.split(golden.LLAMA3.replace("{1,3}", "")), normalizers.NFC()),
    }

    def own(path):
        return GGUFReader(path).fields["tokenizer.chat_template"].contents()

    def stored(name):
        return open(f"{folder}/{name}.jinja").read()

    templates = [
        ("SmolLM2", "smollm2", own(smollm2)), ("Qwen2", "qwen2", own(qwen2)), ("ChatML", "qwen2", CHATML),
        ("Qwen2.5", "qwen2", stored("Qwen-Qwen2.5-7B-Instruct")), ("Qwen3", "qwen2", stored("Qwen-Qwen3-0.6B")),
        ("Llama 3", "llama3", LLAMA3), ("Llama 3.1", "llama3", stored("meta-llama-Llama-3.1-8B-Instruct")),
        ("Llama 3.2", "llama3", stored("meta-llama-Llama-3.2-3B-Instruct")),
        ("Llama 3.3", "llama3", stored("meta-llama-Llama-3.3-70B-Instruct")),
    ]
    # As transformers sets it up.
    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    with open(f"{golden.HERE}/chat.jsonl", "w") as out:
        for name, vocabulary, source in templates:
            cases = []
            for messages in CONVERSATIONS:
                for add, think in ((True, True), (False, True), (True, False)):
                    if not think and name != "Qwen3":
                        continue
                    text = jinja.from_string(source).render(
                        messages=messages, add_generation_prompt=add, tools=None, bos_token="<|begin_of_text|>",
                        enable_thinking=think)
                    ids = vocabularies[vocabulary].encode(text, add_special_tokens=False).ids
                    cases.append({"messages": messages, "add_generation_prompt": add, "enable_thinking": think, "ids": ids})
            out.write(json.dumps({"name": name, "vocabulary": vocabulary, "template": source, "cases": cases}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
