"""Every answer of a running controller is what its own OpenAPI document says: status, media type and schema, and no field that is not described."""
import json
import urllib.error
import urllib.request

import jsonschema
import pytest
from stack import get_json, wait_for

# (method, path in the document, path asked for, body, status expected). `{worker}` is the worker's name.
REQUESTS = [
    ("get", "/v1/status", "/v1/status", None, 200),
    ("get", "/v1/tiers", "/v1/tiers", None, 200),
    ("get", "/v1/tiers", "/v1/tiers?model=none", None, 404),
    ("get", "/v1/settings", "/v1/settings", None, 200),
    ("put", "/v1/settings", "/v1/settings", {"tau": 0.03, "pins": {"3": {"keys": "int8", "values": ["int2", "int8"]}}, "who": "ada", "reason": "a test"}, 200),
    ("put", "/v1/settings", "/v1/settings", {"tau": 0.03}, 200),
    ("put", "/v1/settings", "/v1/settings", {"tau": 0.04, "dry_run": True}, 200),
    ("put", "/v1/settings", "/v1/settings", {"tau": -1}, 400),
    ("put", "/v1/settings", "/v1/settings", {"keys_widest": 2}, 400),
    ("put", "/v1/settings", "/v1/settings", "no object", 400),
    ("put", "/v1/settings", "/v1/settings", {"tau": 0.05, "check_revision": 99999}, 409),
    ("post", "/v1/plan", "/v1/plan", {"tau": 10}, 200),
    ("post", "/v1/plan", "/v1/plan", {"tau": 10, "check_revision": 99999}, 409),
    ("post", "/v1/plan", "/v1/plan", {"taw": 1}, 400),
    ("post", "/v1/freeze", "/v1/freeze", {"reason": "hold"}, 200),
    ("post", "/v1/freeze", "/v1/freeze", {"tau": 1}, 400),
    ("post", "/v1/freeze", "/v1/freeze", {"check_revision": 99999}, 409),
    ("post", "/v1/thaw", "/v1/thaw", None, 200),
    ("post", "/v1/thaw", "/v1/thaw", {"frozen": False}, 400),
    ("post", "/v1/thaw", "/v1/thaw", {"check_revision": 99999}, 409),
    ("post", "/v1/undo", "/v1/undo", None, 200),
    ("post", "/v1/undo", "/v1/undo", {"revision": 99999}, 404),
    ("post", "/v1/undo", "/v1/undo", {"revision": "one"}, 400),
    ("post", "/v1/undo", "/v1/undo", {"check_revision": 99999}, 409),
    ("get", "/v1/history", "/v1/history", None, 200),
    ("get", "/v1/history", "/v1/history?from=2&limit=1", None, 200),
    ("get", "/v1/history", "/v1/history?from=x", None, 400),
    ("get", "/v1/history/{revision}", "/v1/history/1", None, 200),
    ("get", "/v1/history/{revision}", "/v1/history/99999", None, 404),
    ("get", "/v1/history/{revision}", "/v1/history/one", None, 400),
    ("get", "/v1/flips", "/v1/flips", None, 200),
    ("get", "/v1/flips", "/v1/flips?limit=x", None, 400),
    ("get", "/v1/target", "/v1/target", None, 200),
    ("get", "/v1/target", "/v1/target?limit=x", None, 400),
    ("get", "/v1/cache", "/v1/cache?worker={worker}", None, 200),
    ("get", "/v1/cache", "/v1/cache?worker={worker}&sequence=1", None, 200),
    ("get", "/v1/cache", "/v1/cache?worker=none", None, 404),
    ("get", "/v1/cache", "/v1/cache", None, 400),
    ("get", "/v1/cache", "/v1/cache?worker={worker}&sequence=x", None, 400),
    ("get", "/v1/watch", "/v1/watch?from=x", None, 400),
    ("get", "/openapi.json", "/openapi.json", None, 200),
    ("get", "/config", "/config", None, 200),
    ("get", "/health", "/health", None, 200),
    ("get", "/ready", "/ready", None, 200),
    ("get", "/metrics", "/metrics", None, 200),
    ("get", "/", "/", None, 200),
    ("get", "/page/{file}", "/page/main.js", None, 200),
    ("get", "/page/{file}", "/page/style.css", None, 200),
    ("get", "/page/{file}", "/page/nothing.js", None, 404),
]


def ask(url: str, method: str, body) -> tuple[int, str, bytes]:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method.upper()), timeout=30) as reply:
            return reply.status, reply.headers["Content-Type"], reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read()


def closed(schema):
    """The schema, refusing fields that it does not name. Objects that name none are anything; parts of an allOf name some each."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    if "properties" in schema and "additionalProperties" not in schema and isinstance(schema["properties"], dict):
        result["unevaluatedProperties"] = False
    if "allOf" in schema:
        result["unevaluatedProperties"] = False
    return result


def open_parts(schemas: dict) -> dict:
    """Closed schemas, but for those that an allOf puts together: there the whole is closed."""
    joined = {part["$ref"].rsplit("/", 1)[1] for schema in schemas.values() for part in schema.get("allOf", []) if "$ref" in part}
    result = {}
    for name, schema in schemas.items():
        result[name] = closed(schema)
        if name in joined and "allOf" not in schema:
            result[name].pop("unevaluatedProperties", None)
        for part in result[name].get("allOf", []):
            part.pop("unevaluatedProperties", None)
    return result


@pytest.fixture(scope="module")
def document(stack):
    document = get_json(stack.controller_url + "/openapi.json")
    document["components"]["schemas"] = open_parts(document["components"]["schemas"])
    return document


def faults(document: dict, schema: dict, value) -> list[str]:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "components": document["components"], **closed(schema)}
    return [f"{error.json_path}: {error.message[:300]}" for error in jsonschema.Draft202012Validator(schema).iter_errors(value)]


def response_of(document: dict, method: str, path: str, status: int) -> dict:
    responses = document["paths"][path][method]["responses"]
    assert str(status) in responses, f"{method} {path}: {status} is not described"
    response = responses[str(status)]
    return document["components"]["responses"][response["$ref"].rsplit("/", 1)[1]] if "$ref" in response else response


def test_the_document_is_sound(document):
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert document["openapi"].startswith("3.1")


def test_every_route_is_asked(document):
    described = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert {(method, path) for method, path, *_ in REQUESTS} == described


def test_answers_are_as_described(stack, document):
    worker, wrong = get_json(stack.controller_url + "/v1/status")["workers"][0]["worker"], set()
    for method, path, asked, body, expected in REQUESTS:
        status, media, text = ask(stack.controller_url + asked.replace("{worker}", worker), method, body)
        assert status == expected, (method, asked, text[:300])
        content = response_of(document, method, path, status)["content"]
        media = media.split(";")[0]
        assert media in content, (method, asked, media)
        if media != "application/json":
            continue
        wrong |= {f"{method} {asked}: {fault}" for fault in faults(document, content[media]["schema"], json.loads(text))}
    assert wrong == set()


def test_live_values_are_as_described(stack, document, client):
    """After firings and with a sequence's pages there is more to describe."""
    stack.striactl("thaw")
    stack.striactl("canary", "rate", "set", "1")
    stream = client.completions.create(model=stack.model, prompt="Why is the sky blue? " * 40, max_tokens=400, stream=True,
                                       logit_bias={"2": -100, "0": -100}, temperature=1.0)
    for _, _chunk in zip(range(80), stream):
        pass
    worker = get_json(stack.controller_url + "/v1/status")["workers"][0]["worker"]
    held = get_json(f"{stack.controller_url}/v1/cache?worker={worker}")["sequences"]
    assert len(held) == 1
    cache = get_json(f"{stack.controller_url}/v1/cache?worker={worker}&sequence={held[0]['sequence']}")
    assert len(cache["pages"]["layers"]) == 30 and cache["pages"]["layers"][0]["keys"][0] == 16
    assert faults(document, {"$ref": "#/components/schemas/Cache"}, cache) == []
    tiers = wait_for("a firing", lambda: (t := get_json(stack.controller_url + "/v1/tiers"))["firings"] > 0 and t)
    assert tiers["layers"][0]["ema"] is not None
    assert faults(document, {"$ref": "#/components/schemas/Tiers"}, tiers) == []
    assert faults(document, {"$ref": "#/components/schemas/Status"}, get_json(stack.controller_url + "/v1/status")) == []
    for flip in get_json(stack.controller_url + "/v1/flips")["flips"]:
        assert faults(document, {"$ref": "#/components/schemas/Flip"}, flip) == []
    stream.close()


def test_what_is_not_described_would_be_found(document):
    status = {"unix_seconds": 1.5, "revision": 1, "tau": 1, "frozen": False, "models": [], "workers": [], "state_file": {"damage": None, "error": None},
              "listening": {"http": "a", "telemetry": "b", "tiers": "c"}}
    assert faults(document, {"$ref": "#/components/schemas/Status"}, status) == []
    for wrong in ({**status, "secret": 1}, {**status, "tau": "1"}, {key: value for key, value in status.items() if key != "frozen"}):
        assert faults(document, {"$ref": "#/components/schemas/Status"}, wrong) != []
