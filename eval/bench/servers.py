"""Servers under load, on ports from the kernel: ours, and llama.cpp's with the same file, threads and bytes for the cache."""
import pathlib
import subprocess
import sys
import tempfile

from install_peers import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from stack import Stack, free_ports, get_text, wait_for  # noqa: E402  the tests' own start and stop of the three processes

LLAMA_BITS = {"f16": 16.0, "q8_0": 8.5, "q4_0": 4.5}  # per element: blocks of 32 with one FP16 scale


class Stria:
    def __init__(self, setting: str, cache_bytes: int, threads: int, slots: int):
        self.name = f"Stria {setting}"
        self.folder = tempfile.TemporaryDirectory()
        self.stack = Stack(pathlib.Path(self.folder.name), ("--pool-bytes", str(cache_bytes), "--threads", str(threads),
                                                            "--max-sequences", str(slots))).start_all()
        self.port = self.stack.api_port
        self.extra = {"kv": {"mode": setting}, "model": self.stack.model}

    def stop(self) -> None:
        self.stack.stop()
        self.folder.cleanup()


class LlamaServer:
    """One cache for all slots (unified), flash attention, requests batched as they come; its prompt cache in RAM is off: its bytes
    would come on top."""

    def __init__(self, folder: pathlib.Path, model: pathlib.Path, setting: str, cache_bytes: int, fp16_token_bytes: float, threads: int, slots: int):
        self.name = f"llama.cpp {setting}"
        self.port = free_ports(1)[0]
        self.cells = int(cache_bytes / (fp16_token_bytes * LLAMA_BITS[setting] / 16)) // 256 * 256
        self.extra = {"cache_prompt": False}
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [str(word) for word in (folder / "llama-server", "-m", model, "--port", self.port, "-t", threads, "-tb", threads, "-fa", "on",
                                    "-ctk", setting, "-ctv", setting, "-c", self.cells, "-np", slots, "-kvu", "-cram", 0)],
            stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        try:
            wait_for("llama-server ready", self._ready, 120)
        except AssertionError:
            self.stop()
            raise

    def _ready(self) -> bool:
        if self.process.poll() is not None:
            self.log.seek(0)
            raise AssertionError(f"llama-server ended: {self.log.read()[-500:]}")
        return bool(get_text(f"http://127.0.0.1:{self.port}/health"))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
