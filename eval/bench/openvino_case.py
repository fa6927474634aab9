"""Cases of OpenVINO GenAI at one setting, run in the peers' environment; the model is loaded once.

Usage: openvino_case.py MODEL.gguf THREADS pa|sdpa PRECISION MAX_SEQUENCES MAX_TOKENS
Each line of input, "SEQUENCES CONTEXT STEPS REPEATS", is answered by a line {"prefill": tokens/s, "decode": tokens/s}.
MAX_TOKENS: of all sequences together. pa: the continuous-batching pipeline, stepped from here; sdpa: the stateful pipeline, by its
own time stamps.
"""
import json
import sys
import time

import numpy as np
import openvino
import openvino_genai as genai

WARM_UP_STEPS = 4
MARGIN_TOKENS = 128  # of each sequence: the steps, and a block that is not full
CACHE_BYTES_PER_TOKEN = 46_080  # of SmolLM2-135M, if a precision were kept as f32


def prompts(sequences: int, context: int, seed: int) -> list:
    random = np.random.default_rng(seed)
    return [openvino.Tensor(random.integers(100, 49000, (1, context), dtype=np.int64)) for _ in range(sequences)]


def config(new_tokens: int) -> genai.GenerationConfig:
    result = genai.GenerationConfig()
    result.max_new_tokens = new_tokens
    result.ignore_eos = True
    return result


class Paged:
    def __init__(self, model: str, properties: dict, max_sequences: int, max_tokens: int):
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = 1 + (max_tokens + max_sequences * MARGIN_TOKENS) * CACHE_BYTES_PER_TOKEN // 2**30  # GiB
        scheduler.max_num_batched_tokens = max_tokens  # the whole prompt in one step
        scheduler.max_num_seqs = max_sequences
        self.pipeline = genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)
        self.next_id = 0

    def run(self, inputs: list, steps: int) -> dict:
        begin = time.perf_counter()
        handles = []
        for tokens in inputs:
            handles.append(self.pipeline.add_request(self.next_id, tokens, config(steps + WARM_UP_STEPS + 1000)))
            self.next_id += 1
        waiting = list(handles)
        while waiting:
            self.pipeline.step()
            waiting = [handle for handle in waiting if not handle.can_read()]
        prefill = time.perf_counter() - begin
        for _ in range(WARM_UP_STEPS):
            self.pipeline.step()
        for handle in handles:
            self._drain(handle)
        begin = time.perf_counter()
        for _ in range(steps):
            self.pipeline.step()
        decode = time.perf_counter() - begin
        made = sum(self._drain(handle) for handle in handles)
        if made != steps * len(inputs):
            sys.exit(f"{steps} steps of {len(inputs)} sequences made {made} tokens")
        for handle in handles:
            handle.stop()
        self.pipeline.step()  # frees their blocks
        return {"prefill": sum(tokens.shape[1] for tokens in inputs) / prefill, "decode": made / decode}

    @staticmethod
    def _drain(handle) -> int:
        count = 0
        while handle.can_read():
            count += sum(len(output.generated_ids) for output in handle.read().values())
        return count


class Stateful:
    def __init__(self, model: str, properties: dict):
        self.pipeline = genai.LLMPipeline(model, "CPU", ATTENTION_BACKEND="SDPA", **properties)

    def run(self, inputs: list, steps: int) -> dict:
        (tokens,) = inputs
        result = self.pipeline.generate(tokens, config(1 + WARM_UP_STEPS + steps))
        stamps = list(result.perf_metrics.raw_metrics.m_new_token_times)
        if len(stamps) != 1 + WARM_UP_STEPS + steps:
            sys.exit(f"{len(stamps)} time stamps for {1 + WARM_UP_STEPS + steps} tokens")
        return {"prefill": tokens.shape[1] / (result.perf_metrics.get_ttft().mean / 1e3),
                "decode": steps / ((stamps[-1] - stamps[WARM_UP_STEPS]) / 1e3)}


def main() -> None:
    model, threads, backend, precision, max_sequences, max_tokens = sys.argv[1:]
    properties = {"INFERENCE_NUM_THREADS": int(threads), "KV_CACHE_PRECISION": precision}
    pipeline = Paged(model, properties, int(max_sequences), int(max_tokens)) if backend == "pa" else Stateful(model, properties)
    for line in sys.stdin:
        sequences, context, steps, repeats = map(int, line.split())
        for repeat in range(repeats):
            result = pipeline.run(prompts(sequences, context, repeat), steps)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
