"""The image's recipe as far as it can be checked without a container builder."""
import re
import subprocess

from manifests import ROOT, containers, render
from stack import BIN

TEXT = (ROOT / "Dockerfile").read_text()


def stages() -> dict[str, tuple[str, str]]:
    """Name → (what it starts from, its lines)."""
    parts = re.split(r"^FROM (\S+) AS (\S+)\n", TEXT, flags=re.MULTILINE)[1:]
    return {name: (base, body) for base, name, body in zip(*[iter(parts)] * 3)}


def last(word: str, stage: str) -> str | None:
    base, body = stages()[stage]
    found = re.findall(rf"^{word} (.+)$", body, re.MULTILINE)
    return found[-1] if found else last(word, base) if base in stages() else None


def packages(path) -> set[str]:
    return {line for line in path.read_text().splitlines() if line and not line.startswith("#")}


def test_images_run_as_the_user_of_the_manifests():
    for target in ("cpu", "cuda", "cpu-dev"):
        assert last("USER", target) == "10001:10001"
    for folder in ("base", "overlays/cpu-dev", "overlays/gpu"):
        for container in containers(render(folder)):
            assert re.fullmatch(r"/opt/stria/bin/(scheduler|controller|worker)", container["command"][0])


def test_steps_are_commands_of_the_script():
    usage = subprocess.run([str(ROOT / "stria"), "help"], capture_output=True, text=True, check=True).stdout
    steps = re.findall(r"stria (\w+) ", "\n".join(line for line in TEXT.splitlines() if line.startswith("RUN")))
    assert {"packages", "install", "fetch"} == set(steps)
    for step in steps:
        assert f"./stria {step} " in usage
    for source in re.findall(r"^COPY (?:--from=build /src/)?((?:stria|third_party)\S*)", TEXT, re.MULTILINE):
        assert (ROOT / source).exists(), source


def test_runtime_packages_are_what_the_binaries_load():
    libraries = set()
    for name in ("scheduler/scheduler", "controller/controller", "worker/worker", "ctl/striactl"):
        # Those that the binary itself names; the packages know what their own libraries need.
        dynamic = subprocess.run(["objdump", "-p", str(BIN / name)], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r"NEEDED\s+(\S+)", dynamic))
        loaded = subprocess.run(["ldd", str(BIN / name)], capture_output=True, text=True, check=True).stdout
        libraries |= {path for library, path in re.findall(r"(\S+) => (/\S+)", loaded) if library in needed}
    owners = set()
    for library in libraries:
        files = {library, library.removeprefix("/usr"), subprocess.run(["readlink", "-f", library], capture_output=True, text=True).stdout.strip()}
        owned = subprocess.run(["dpkg", "-S", *files], capture_output=True, text=True).stdout
        assert owned, library
        owners |= {line.partition(":")[0] for line in owned.splitlines()}
    in_every_image = {"libc6", "libgcc-s1", "libstdc++6"}
    assert owners - in_every_image == packages(ROOT / "third_party/runtime_packages.txt")
