"""Schemas of Kubernetes versions, and of custom resources where they are present."""

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.helm.tool import ROOT, Manifest

VERSIONS = ("1.29", "1.33", "1.37")
"""The versions whose schemas the manifests fulfil: the oldest that the chart accepts, and newer."""

CUSTOM = ROOT.parent / "shared" / "data" / "crds"
"""Where the definitions of the custom resources are, if they are on this machine."""


def problems(manifest: Manifest, version: str) -> list[str]:
    """What is wrong with a manifest, by the strict schemas of a Kubernetes version."""
    group, _, api_version = manifest["apiVersion"].rpartition("/")
    named = f"{group.partition('.')[0]}-{api_version}" if group else api_version
    found = _validator(version, manifest["kind"].lower(), named)
    return _texts(found, manifest)


def custom_problems(manifest: Manifest) -> list[str]:
    """What is wrong with a custom resource, by its definition."""
    group, _, api_version = manifest["apiVersion"].rpartition("/")
    return _texts(_custom_validators()[group, api_version, manifest["kind"]], manifest)


def is_custom(manifest: Manifest) -> bool:
    """Whether Kubernetes itself does not know the kind."""
    group = manifest["apiVersion"].rpartition("/")[0]
    return group == "sparkoperator.k8s.io" or ("." in group and not group.endswith(".k8s.io"))


def _texts(validator: Draft202012Validator, manifest: Manifest) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(manifest)]


@cache
def _validator(version: str, kind: str, api_version: str) -> Draft202012Validator:
    schema = _read(version, f"{kind}-{api_version}.json")
    registry = _definitions(version).with_resource("", Resource.from_contents(schema))
    return Draft202012Validator(schema, registry=registry)


@cache
def _definitions(version: str) -> "Registry[Any]":
    definitions = Resource.from_contents(_read(version, "_definitions.json"))
    empty: Registry[Any] = Registry()
    return cast("Registry[Any]", empty.with_resource("_definitions.json", definitions))


def _read(version: str, name: str) -> Any:
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    return json.loads((folder / name).read_text())


@cache
def _custom_validators() -> dict[tuple[str, str, str], Draft202012Validator]:
    found = {}
    for path in sorted(Path(CUSTOM).glob("*.yaml")):
        spec = yaml.safe_load(path.read_text())["spec"]
        for version in spec["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            _close(schema)
            schema["properties"]["metadata"] = {"type": "object"}
            key = spec["group"], version["name"], spec["names"]["kind"]
            found[key] = Draft202012Validator(schema)
    return found


def _close(schema: dict[str, Any]) -> None:
    """Forbid unknown members, as an API server does that validates strictly."""
    if schema.get("x-kubernetes-int-or-string"):
        schema.pop("anyOf", None)
        schema["type"] = ["integer", "string"]
    properties = schema.get("properties")
    if properties is not None:
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        for each in properties.values():
            _close(each)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            _close(schema[name])
