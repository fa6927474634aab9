"""What the figures were measured on."""
import datetime
import hashlib
import os
import pathlib

# Instruction sets that the kernels here and those of the peers choose between.
INSTRUCTION_SETS = ("avx2", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8", "amx_bf16")


def cpu_quota(text: str) -> float | None:
    """Cores that a cgroup's cpu.max allows; None where there is no limit."""
    quota, _, period = text.strip().partition(" ")
    return None if quota in ("", "max") else int(quota) / int(period)


def threads() -> int:
    """Threads for every contestant: the cores that this process may use, by affinity and by cgroup."""
    cores = len(os.sched_getaffinity(0))
    limit = pathlib.Path("/sys/fs/cgroup/cpu.max")
    quota = cpu_quota(limit.read_text()) if limit.exists() else None
    return max(1, cores if quota is None else min(cores, int(quota)))


def _cpuinfo() -> dict[str, str]:
    first = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}


def describe() -> dict:
    info = _cpuinfo()
    flags = set(info.get("flags", "").split())
    return {"cpu": f"{info.get('model name', 'unknown')} (family {info.get('cpu family')}, model {info.get('model')})",
            "instruction_sets": [name for name in INSTRUCTION_SETS if name in flags],
            "cores": threads(), "date": datetime.date.today().isoformat()}


def build_key() -> str:
    """Changes when a binary built for this processor may not run, or not run best, any more."""
    info = _cpuinfo()
    return hashlib.sha256((info.get("model name", "") + info.get("flags", "")).encode()).hexdigest()[:8]
