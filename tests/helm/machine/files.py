"""What a container finds: its environment, and its volumes as folders."""

import base64
import os
import re
from pathlib import Path
from typing import Any

from tests.helm.chroot import USER
from tests.helm.machine.instance import Instance
from tests.helm.tool import Manifest, of_kind


class Files:
    """The environment and the volumes of pods; claims are folders that outlive a pod."""

    def __init__(self, objects: tuple[Manifest, ...], claims: Path, hosts: Path) -> None:
        self._objects = objects
        self._claims = claims
        self._hosts = hosts

    def secret(self, name: str, key: str) -> str:
        """A value of a Secret."""
        return base64.b64decode(self._data("Secret", name)[key]).decode()

    def command(self, instance: Instance) -> list[str]:
        """The command of the container."""
        variables = self.variables(instance)
        return [_expanded(word, variables) for word in instance.container["command"]]

    def variables(self, instance: Instance) -> dict[str, str]:
        """The environment of the container."""
        found: dict[str, str] = {}
        for each in instance.container.get("env", []):
            if "value" in each:
                found[each["name"]] = _expanded(str(each["value"]), found)
                continue
            source = each["valueFrom"]
            if "fieldRef" in source:
                fields = {"status.podIP": instance.address, "metadata.name": instance.name}
                found[each["name"]] = fields[source["fieldRef"]["fieldPath"]]
            else:
                reference = source["secretKeyRef"]
                name, key = reference["name"], reference["key"]
                if key in self._data("Secret", name) or not reference.get("optional"):
                    found[each["name"]] = self.secret(name, key)
        return found

    def binds(self, instance: Instance) -> dict[str, Path]:
        """The folders and files of the container, by their paths in it."""
        found = {"/etc/hosts": self._hosts}
        volumes = {each["name"]: each for each in instance.pod.spec.get("volumes", [])}
        for mount in instance.container["volumeMounts"]:
            path = self._volume(instance, mount["name"], volumes.get(mount["name"]))
            found[mount["mountPath"]] = path / mount.get("subPath", "")
        return found

    def fixed(self, instance: Instance) -> list[str]:
        """The paths of those that the container can only read."""
        volumes = {each["name"]: each for each in instance.pod.spec.get("volumes", [])}
        return [
            mount["mountPath"]
            for mount in instance.container["volumeMounts"]
            if mount.get("readOnly")
            or volumes.get(mount["name"], {}).get("persistentVolumeClaim", {}).get("readOnly")
        ]

    def _volume(self, instance: Instance, name: str, volume: dict[str, Any] | None) -> Path:
        if volume is None:  # of the StatefulSet's templates of claims
            return _folder(self._claims / f"{name}-{instance.name}")
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            assert claim in of_kind(self._objects, "PersistentVolumeClaim")
            return _folder(self._claims / claim)
        path = instance.folder / name
        if path.exists():
            return path
        files: dict[str, bytes] = {}
        if "configMap" in volume:
            texts = self._data("ConfigMap", volume["configMap"]["name"])
            files = {key: text.encode() for key, text in texts.items()}
        elif "secret" in volume:
            data = self._data("Secret", volume["secret"]["secretName"])
            items = volume["secret"].get("items") or [{"key": key, "path": key} for key in data]
            files = {each["path"]: base64.b64decode(data[each["key"]]) for each in items}
        _folder(path)
        for file, content in files.items():
            (path / file).write_bytes(content)
            _give(path / file, 0o440 if "secret" in volume else 0o644)
        if files:
            _give(path, 0o2755)
        return path

    def _data(self, kind: str, name: str) -> dict[str, str]:
        data: dict[str, str] = of_kind(self._objects, kind)[name]["data"]
        return data


def _folder(path: Path) -> Path:
    """A folder that the pod can write."""
    if not path.exists():
        path.mkdir(parents=True)
        _give(path, 0o2777)
    return path


def _give(path: Path, mode: int) -> None:
    """As Kubernetes does with `fsGroup`: root's, and the group's."""
    os.chown(path, 0, USER)
    path.chmod(mode)


def _expanded(text: str, variables: dict[str, str]) -> str:
    """A text with `$(NAME)` replaced, as Kubernetes does."""
    return re.sub(r"\$\((\w+)\)", lambda found: variables.get(found[1], found[0]), text)
