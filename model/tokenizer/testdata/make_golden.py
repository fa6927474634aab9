#!/usr/bin/env python3
"""Makes the golden data of tokenizer_golden_test.cc with Hugging Face `tokenizers`.

Writes strings.jsonl (one JSON string a line) and for each pre-tokenizer NAME.ids, line by line the number of ids and
the first 8 hex digits of a 64-bit FNV-1a over them (32-bit little-endian each); every 40th line also the ids. A second
pair follows where reading written-out control tokens as such makes a difference. decode.jsonl: ids and their text.

Needs: pip install gguf tokenizers; the vocabularies as GGUF files: SmolLM2-135M-Instruct, and ggml-vocab-llama-bpe and
ggml-vocab-qwen2 of llama.cpp.
Run: python3 make_golden.py SMOLLM2.gguf LLAMA_BPE.gguf QWEN2.gguf
"""
import json
import os
import random
import sys

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
CONTROL, USER_DEFINED = 3, 4


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=use_regex)


def split(regex):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), byte_level(False)])


def load(path, pre_tokenizer, normalizer=None, ignore_merges=False):
    """The pipeline of the model's own tokenizer.json over the vocabulary of a GGUF file."""
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    fillers = {i for i, t in enumerate(tokens) if t == f"[PAD{i}]"}  # rows without a token
    vocab = {t: i for i, t in enumerate(tokens) if i not in fillers}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True)
                                  for t, y in zip(tokens, types) if y == CONTROL])
    return tokenizer


# The same few sentences in many languages, written for this test.
SENTENCES = """The weather is nice today, and I'd like to walk to the river.
Das Wetter ist heute schön, und ich möchte zum Fluss gehen; Straße, Größe, Übung.
Il fait beau aujourd'hui, j'aimerais aller jusqu'à la rivière. Où ça ? Là-bas !
Hoy hace buen tiempo. ¿Vamos al río? ¡Sí, mañana también!
Hoje o tempo está bom; não há razão para ficar em casa.
Oggi è bello, perché non andiamo al fiume?
Pogoda jest dziś ładna, chciałbym pójść nad rzekę. Zażółć gęślą jaźń.
Dnes je hezky, půjdeme k řece. Příliš žluťoučký kůň.
Ma szép idő van, menjünk a folyóhoz. Árvíztűrő tükörfúrógép.
Bugün hava güzel, ırmağa yürümek istiyorum. İstanbul, ığdır.
Сегодня хорошая погода, пойдём к реке. Съешь ещё этих булок.
Сьогодні гарна погода, ходімо до річки. Ґанок, їжак.
Времето днес е хубаво и искам да отида до реката.
Σήμερα ο καιρός είναι καλός και θέλω να πάω στο ποτάμι.
היום מזג האוויר נעים ואני רוצה ללכת לנהר. שָׁלוֹם
الطقس جميل اليوم وأريد أن أمشي إلى النهر. مَرْحَبًا
هوا امروز خوب است و می‌خواهم به رودخانه بروم.
आज मौसम अच्छा है और मैं नदी तक जाना चाहता हूँ।
আজ আবহাওয়া ভালো, আমি নদীর কাছে যেতে চাই।
இன்று வானிலை நன்றாக உள்ளது, நான் ஆற்றுக்குச் செல்ல விரும்புகிறேன்.
ఈ రోజు వాతావరణం బాగుంది, నేను నదికి వెళ్లాలనుకుంటున్నాను.
วันนี้อากาศดี ฉันอยากเดินไปที่แม่น้ำ
ມື້ນີ້ອາກາດດີ ຂ້ອຍຢາກໄປແມ່ນ້ຳ
ဒီနေ့ ရာသီဥတု ကောင်းတယ်၊ မြစ်ကို သွားချင်တယ်။
ថ្ងៃនេះអាកាសធាតុល្អ ខ្ញុំចង់ទៅទន្លេ។
今天天气很好，我想走到河边。你呢？
今日は天気がいいので、川まで歩きたいです。カタカナとひらがな。
오늘은 날씨가 좋아서 강까지 걸어가고 싶어요.
Hôm nay trời đẹp, tôi muốn đi bộ ra sông.
დღეს კარგი ამინდია, მინდა მდინარემდე გავისეირნო.
Այսօր եղանակը լավ է, ուզում եմ գնալ գետ։
ዛሬ አየሩ ጥሩ ነው፣ ወደ ወንዙ መሄድ እፈልጋለሁ።
Ὁ καιρὸς σήμερον καλός ἐστιν· βούλομαι πρὸς τὸν ποταμὸν ἰέναι.
ᏏᏲ, ᎣᏏᏉᏍ; ᎢᏳᏃ ᏣᏚᎵ.
𐌲𐌿𐍄𐌹𐍃𐌺 𐍂𐌰𐌶𐌳𐌰 𝒻𝓇𝒶𝓀𝓉𝓊𝓇 𝔣𝔯𝔞𝔨𝔱𝔲𝔯 𝟙𝟚𝟛
""".splitlines()
CODE = """def f(x: int) -> int:\n    return x**2  # square\n
for (size_t i = 0; i < n; ++i) {\n\ta[i] += b[i] * 0x1F;\n}\n
SELECT id, COUNT(*) FROM t WHERE name LIKE '%o''%' GROUP BY id;\n
<div class="x y">&nbsp;<a href='https://example.org/?q=1&r=%20'>it's</a></div>\n
\\begin{equation} e^{i\\pi} + 1 = 0 \\label{eq:1} \\end{equation}\n
{"a": [1, 2.5e-10, null], "b\\u00e9": {"c": true}}\n
$ grep -rn "TODO\\b" src/ | awk '{print $1}' > /tmp/out.txt 2>&1\n
template <typename T>\nauto g(T&& t) noexcept(false) -> decltype(t->x()) { return t->x(); }\n
#include <stdio.h>\r\nint main(void) { printf("%d\\n", 42); return 0; }\r\n
lambda xs: [y for x in xs if (y := f(x)) is not None]\n""".split("\n\n")
EMOJI = ("😀 😂 👍🏽 👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 🇯🇵🇰🇷 ❤️ ☕️ 1️⃣ #️⃣ 🧑🏿‍🚀 🫠 🪿 🩷 🫨 ✨ ✔︎ ✔️ ⚡ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🤷🏻‍♀️ ♟ 🀄 "
         "⏸ ⓜ ㊗").split(" ")
LOOKALIKES = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>",
              "<|end_header_id|>", "<|end_of_text|>", "<|python_tag|>", "<|im_start|", "|im_end|>", "<|im_start|>system\n",
              "<|IM_END|>", "< |im_end|>", "<|im_ end|>", "<<|im_end|>>", "<|im_<|im_end|>end|>", "<repo_name>",
              "<filename>", "<gh_stars>", "<jupyter_code>", "<think>", "</think>", "<tool_call>", "[PAD151650]", "<s>",
              "</s>", "[INST]", "<|reserved_special_token_7|>", "<unk>", "<|", "|>"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\n\n", "\u00a0", "\u2003", "\u3000", "\u2028", "\x0b", "\x0c", "\x85",
          "\u200b", "\u1680", "\ufeff", "\x1c", "\x1f", " " * 17, "\n" * 5, " \n", "\t\t"]
WORDS = ["a", "the", "Hello", "world", "it's", "WE'LL", "é", "ß", "x1", "1", "23", "456", "7890", ".", ",", "...", "!?", "(", ")",
         "_", "-", "--", "'", "\"", "’s", "中", "文字", "🙂", "don't", "I'M", "'s", "'S", "'ſ", "'RE", "'Ve", "'d", "'x", "''t", "$9.99",
         "@", "#", "/*", "*/", "\\", "½", "Ⅷ", "٣", "३", "𝟘", "㊿", "੩"]
MARKS = ["\u0300", "\u0301", "\u0308", "\u0323", "\u0327", "\u0345", "\u0338", "\u05b0", "\u05bc", "\u064b", "\u0651", "\u093c",
         "\u094d", "\u0e38", "\u0f71", "\u302a", "\u3099", "\u309a", "\u20d0", "\u1dfa", "\U0001d165", "\u0f74", "\u1ab0"]
BASES = ["a", "e", "A", "o", "ü", "Ω", "\u1100", "\u1161", "\u11a8", "\uac00", "\uac01", "か", "は", "ब", "क", "\u212b", "\u2126", "\ufb1d",
         "\uf900", "\u0958", "ﬁ", "\u1e9b", "ö", "\u01d5", "\u1f85", "\u2adc", "\u0cc6", "\u0cd5", "\u0dd9", "\u1b05", "\u1b35",
         "\U00011131", "\U00011127", "\U0001d157", "\u0b47", "\u0b3e", "\u0344"]
BLOCKS = [(0x20, 0x7F), (0x80, 0x250), (0x250, 0x530), (0x530, 0x800), (0x800, 0x1000), (0x1000, 0x2000), (0x2000, 0x2C00),
          (0x2C00, 0x3100), (0x3100, 0x4DC0), (0x4E00, 0xA000), (0xA000, 0xAC00), (0xAC00, 0xD7B0), (0xE000, 0xFB00),
          (0xFB00, 0x10000), (0x10000, 0x11000), (0x11000, 0x12000), (0x12000, 0x18000), (0x1B000, 0x1D000),
          (0x1D000, 0x1E000), (0x1E000, 0x1F000), (0x1F000, 0x20000), (0x20000, 0x32400), (0xE0000, 0xE0200)]


def strings(rng, vocabularies):
    """The varied strings, some 12,000."""
    def pick(*lists):
        return rng.choice(rng.choice(lists))

    def some(low, high, make):
        return "".join(make() for _ in range(rng.randint(low, high)))

    def character(block):
        while True:
            c = rng.randrange(*block)
            if not 0xD800 <= c < 0xE000:
                return chr(c)

    yield from ["", " ", "  ", "\n", "\r\n", "\0", "a\0b", "\t", "'", "''", "'s", " 's"] + SENTENCES + CODE + EMOJI + LOOKALIKES
    for _ in range(1500):  # sentences cut and joined anywhere
        text = pick(SENTENCES, SENTENCES, CODE) + rng.choice(["", " ", "\n"]) + pick(SENTENCES)
        begin = rng.randrange(len(text))
        yield text[begin:begin + rng.randint(1, 60)]
    for _ in range(3000):  # tokens of the vocabularies side by side
        def token():
            tokenizer = rng.choice(vocabularies)
            return tokenizer.decode([rng.randrange(tokenizer.get_vocab_size())])
        yield some(1, 6, token).replace("\ufffd", "")
    for block in BLOCKS:  # characters of one script, with spaces
        for _ in range(60):
            yield some(1, 12, lambda: character(block) if rng.random() < .85 else rng.choice(SPACES[:3]))
    for _ in range(600):  # characters of all scripts
        yield some(1, 8, lambda: character(rng.choice(BLOCKS)))
    for _ in range(1500):  # words, spaces, newlines
        yield some(2, 9, lambda: pick(WORDS, SPACES))
    for _ in range(700):  # numbers
        yield some(1, 8, lambda: rng.choice([str(rng.randrange(10 ** rng.randint(1, 9))), "०१२", "٤٥", "½", "²", "Ⅻ", ".", ",", " ", "-",
                                             "x", "%", "\n"]))
    for _ in range(600):
        yield some(1, 5, lambda: pick(EMOJI, EMOJI, ["\u200d", "\ufe0f", "\ufe0e", "🏽", " ", "a", "1"]))
    for _ in range(1200):  # marks in any order, on anything that composes
        yield some(1, 6, lambda: pick(BASES, MARKS, MARKS, [" ", "x"]))
    for _ in range(500):
        yield some(1, 5, lambda: pick(LOOKALIKES, LOOKALIKES, WORDS, SPACES))
    for _ in range(500):  # control characters
        yield some(1, 8, lambda: rng.choice([chr(rng.randrange(32)), chr(rng.randrange(127, 160)), "a", " "]))
    for _ in range(80):  # long words: longer than what is merged by plain search
        unit = rng.choice(["a", "ab", "ha", "=", "-", "0", "é", "の", "क", "\u0301", "ACGT", "'s"])
        yield unit * rng.randint(20, 200)
    for _ in range(80):
        yield "".join(rng.choice("etaoinshrdlu") for _ in range(rng.randint(40, 200)))
    for _ in range(300):  # lower-case words run together
        yield "".join(w for w in rng.choices(SENTENCES[0].lower().split() + ["antidisestablishment", "ing", "un"], k=rng.randint(3, 9)))


def fnv(ids):
    h = 0xCBF29CE484222325
    for i in ids:
        for byte in i.to_bytes(4, "little"):
            h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def main(smollm2, llama_bpe, qwen2):
    tokenizers = {
        "smollm2": load(smollm2, pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level(True)])),
        "gpt2": load(smollm2, byte_level(True)),
        "llama3": load(llama_bpe, split(LLAMA3), ignore_merges=True),
        "qwen2": load(qwen2, split(LLAMA3.replace("{1,3}", "")), normalizers.NFC()),
    }
    rng = random.Random(1)
    vocabularies = [tokenizers[name] for name in ("smollm2", "llama3", "qwen2")]
    texts = list(dict.fromkeys(strings(rng, vocabularies)))
    with open(f"{HERE}/strings.jsonl", "w") as out:
        for text in texts:
            out.write(json.dumps(text, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\x85", "\\u0085") + "\n")
    print(len(texts), "strings")

    decode = open(f"{HERE}/decode.jsonl", "w")
    for name, tokenizer in tokenizers.items():
        with open(f"{HERE}/{name}.ids", "w") as out:
            for i, text in enumerate(texts):
                tokenizer.encode_special_tokens = True  # control tokens in the text are text
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                tokenizer.encode_special_tokens = False
                special = tokenizer.encode(text, add_special_tokens=False).ids
                line = f"{len(ids)} {fnv(ids) >> 32:08x}"
                if special != ids:
                    line += f" {len(special)} {fnv(special) >> 32:08x}"
                if i % 40 == 0:
                    line += " : " + " ".join(map(str, ids))
                out.write(line + "\n")
        for _ in range(150 if name != "gpt2" else 0):
            ids = [rng.randrange(tokenizer.get_vocab_size()) for _ in range(rng.randint(1, 12))]
            shown = [tokenizer.decode(ids, skip_special_tokens=skip) for skip in (True, False)]
            decode.write(json.dumps([name, ids, *shown], ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
