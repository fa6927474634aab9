"""Downloads one source archive from the configured Python package index, checked against the index's SHA-256.

`pip download` would build the package's metadata first, which for some takes a compiler and half an hour.
Usage: fetch_sdist.py NAME VERSION FOLDER   (prints the file's path)
"""
import hashlib
import json
import pathlib
import subprocess
import sys
import urllib.parse
import urllib.request


def index_url() -> str:
    listing = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False).stdout
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        if key.endswith(".index-url"):
            return value.strip("'")
    return "https://pypi.org/simple"


def main(name: str, version: str, folder: str) -> None:
    page = f"{index_url().rstrip('/')}/{name}/"
    request = urllib.request.Request(page, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        files = json.load(reply)["files"]
    wanted = f"{name.replace('-', '_')}-{version}.tar.gz"
    entry = next((f for f in files if f["filename"] == wanted), None)
    if entry is None:
        sys.exit(f"{page} has no {wanted}")
    with urllib.request.urlopen(urllib.parse.urljoin(page, entry["url"]), timeout=60) as reply:
        data = reply.read()
    found, expected = hashlib.sha256(data).hexdigest(), entry["hashes"]["sha256"]
    if found != expected:
        sys.exit(f"{wanted}: checksum {found}, the index says {expected}")
    target = pathlib.Path(folder) / wanted
    target.write_bytes(data)
    print(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
