"""llama.cpp, through the PyPI package `xllamacpp`, as an oracle: greedy continuations with the gap at each
step."""

import json
import urllib.request

import xllamacpp


class LlamaCpp:
    def __init__(self, path, context=2048, threads=1):
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = context
        params.n_parallel = 1
        params.warmup = False
        params.cpuparams.n_threads = threads
        self.server = xllamacpp.Server(params)

    def tokenize(self, text):
        body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
        request = urllib.request.Request(
            self.server.listening_address + "/tokenize", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["tokens"]

    def greedy(self, prompt, steps):
        """Ids and, for each, the gap between the two best logits (as a difference of log-probabilities).
        Shorter than `steps` only where the last id ends the generation."""
        answer = self.server.handle_completions(
            {"prompt": prompt, "max_tokens": steps, "temperature": 0, "logprobs": 2, "cache_prompt": False}
        )
        assert "choices" in answer, answer
        choice = answer["choices"][0]
        tokens, gaps = [], []
        for step in choice["logprobs"]["content"]:
            best, second = step["top_logprobs"]
            assert step["id"] == best["id"]
            tokens.append(step["id"])
            gaps.append(round(best["logprob"] - second["logprob"], 4))
        # Its server says nothing of tokens that end within a UTF-8 character.
        assert answer["usage"]["completion_tokens"] == len(tokens), "a token without text"
        return tokens, gaps
