"""The few answers of a Kubernetes API server that kubectl needs for our questions, over plain HTTP.

It stores and schedules nothing: objects are what a test puts there.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CORE = {
    "configmaps": ("ConfigMap", True),
    "nodes": ("Node", False),
    "pods": ("Pod", True),
    "persistentvolumeclaims": ("PersistentVolumeClaim", True),
    "resourcequotas": ("ResourceQuota", True),
    "secrets": ("Secret", True),
    "services": ("Service", True),
    "serviceaccounts": ("ServiceAccount", True),
}
GROUPS = {
    "batch/v1": {"jobs": ("Job", True)},
    "storage.k8s.io/v1": {"storageclasses": ("StorageClass", False)},
    "authorization.k8s.io/v1": {"selfsubjectaccessreviews": ("SelfSubjectAccessReview", False)},
}

OPENAPI_INDEX = {"paths": {"apis/batch/v1": {"serverRelativeURL": "/openapi/v3/apis/batch/v1"}}}
# What tells kubectl that the server checks fields itself.
OPENAPI = {
    "openapi": "3.0.0",
    "paths": {
        "/apis/batch/v1/namespaces/{namespace}/jobs/{name}": {
            "patch": {
                "parameters": [{"name": "fieldValidation", "in": "query"}, {"name": "dryRun", "in": "query"}],
                "x-kubernetes-group-version-kind": {"group": "batch", "kind": "Job", "version": "v1"},
            }
        }
    },
}


def resource_list(version: str, kinds: Mapping[str, tuple[str, bool]]) -> dict[str, Any]:
    resources = [
        {
            "name": name,
            "singularName": kind.lower(),
            "kind": kind,
            "namespaced": inside,
            "verbs": ["get", "list", "create"],
        }
        for name, (kind, inside) in kinds.items()
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


def status(code: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    return code, {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: Mapping[str, list[dict[str, Any]]]
    forbidden: frozenset[str]

    def do_GET(self) -> None:
        self.reply(*self.found(self.path.partition("?")[0].strip("/")))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "selfsubjectaccessreviews" in self.path:  # asked in protobuf, which takes an answer in JSON
            allowed = not any(name.encode() in body for name in self.forbidden)
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}}
            self.reply(201, {**review, "status": {"allowed": allowed}})
        elif "dryRun=All" in self.path:
            self.reply(201, json.loads(body))
        else:
            self.reply(*status(500, "InternalError", "this server keeps nothing"))

    def found(self, path: str) -> tuple[int, dict[str, Any]]:
        parts = path.split("/")
        if path == "version":
            return 200, {"major": "1", "minor": "33", "gitVersion": "v1.33.1"}
        if path == "api":
            return 200, {"kind": "APIVersions", "versions": ["v1"]}
        if path == "api/v1":
            return 200, resource_list("v1", CORE)
        if path == "apis":
            groups = [
                {"name": name.partition("/")[0], "versions": [version], "preferredVersion": version}
                for name in GROUPS
                if (version := {"groupVersion": name, "version": name.partition("/")[2]})
            ]
            return 200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        if path.removeprefix("apis/") in GROUPS:
            return 200, resource_list(path.removeprefix("apis/"), GROUPS[path.removeprefix("apis/")])
        if path.startswith("openapi/v3"):
            return 200, OPENAPI if path == "openapi/v3/apis/batch/v1" else OPENAPI_INDEX
        kinds = {**CORE, **GROUPS["storage.k8s.io/v1"]}
        name = next((part for part in reversed(parts) if part in kinds), None)
        if name is None:
            return status(404, "NotFound", f"no {path}")
        if name in self.forbidden:
            return status(403, "Forbidden", f'{name} is forbidden: User "ada" cannot list resource "{name}"')
        items = self.objects.get(name, [])
        if parts[-1] == name:
            return 200, {"kind": f"{kinds[name][0]}List", "apiVersion": "v1", "metadata": {}, "items": items}
        for item in items:
            if item["metadata"]["name"] == parts[-1]:
                return 200, {"kind": kinds[name][0], "apiVersion": "v1", **item}
        return status(404, "NotFound", f'{name} "{parts[-1]}" not found')

    def reply(self, code: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def api_server(
    folder: Path, objects: Mapping[str, list[dict[str, Any]]], forbidden: frozenset[str] = frozenset()
) -> Iterator[Path]:
    """The kubeconfig file of a server that has ``objects``, by resource, and lists none of ``forbidden``."""
    handler = type("Handler", (Handler,), {"objects": objects, "forbidden": forbidden})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = folder / "kubeconfig"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {}}],
                "current-context": "c",
            }
        )
    )
    try:
        yield config
    finally:
        server.shutdown()
        server.server_close()
