"""A conversation in the terminal, streamed. `./stria chat` runs it; with TEXT it asks once and ends."""
import json
import os
import sys
import urllib.error
import urllib.request

BASE = os.environ.get("STRIA_URL", "http://127.0.0.1:8000")


def request(path: str, body: dict | None = None):
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("STRIA_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    return urllib.request.urlopen(urllib.request.Request(BASE + path, data=data, headers=headers), timeout=600)


def answer(model: str, messages: list[dict]) -> tuple[str, dict]:
    """Streams one answer to the terminal; returns its text and the request's usage."""
    text, usage = "", {}
    body = {"model": model, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    with request("/v1/chat/completions", body) as reply:
        for line in reply:
            if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise RuntimeError(chunk["error"]["message"])
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                piece = choice["delta"].get("content") or ""
                text += piece
                print(piece, end="", flush=True)
    print()
    return text, usage


def main() -> int:
    once = " ".join(sys.argv[1:])
    try:
        with request("/v1/models") as reply:
            model = json.load(reply)["data"][0]["id"]
        messages: list[dict] = []
        if not once:
            print(f"{model}; an empty line or Ctrl-D ends.")
        while True:
            question = once or input("> ").strip()
            if not question:
                return 0
            messages.append({"role": "user", "content": question})
            text, usage = answer(model, messages)
            messages.append({"role": "assistant", "content": text})
            if sys.stdout.isatty():
                print(f"[{usage.get('completion_tokens')} tokens, cache {usage.get('kv_bits_per_element', 0):.1f} bits per element]")
            if once:
                return 0
    except (EOFError, KeyboardInterrupt):
        print()
        return 0
    except urllib.error.HTTPError as error:
        detail = error.read().decode(errors="replace")
        try:
            detail = json.loads(detail)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            pass
        print(f"chat: {detail}", file=sys.stderr)
    except (urllib.error.URLError, RuntimeError) as error:
        print(f"chat: {getattr(error, 'reason', error)} ({BASE}; is Stria up?)", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
