"""The JSON schema of dzflow's settings, for the chart's value `settings`."""

from typing import Any

from api.start.settings.settings import Settings

_KEPT = (
    "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
    "pattern", "required",
)  # fmt: skip


def settings_schema() -> dict[str, Any]:
    """What a settings file may say, without descriptions and defaults."""
    schema = Settings.model_json_schema()
    return _plain(schema, schema["$defs"])


def _plain(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return _plain(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        kinds = [_plain(each, definitions) for each in schema["anyOf"]]
        if kinds[1:] != [{"type": "null"}]:
            return {"anyOf": kinds}
        kind = kinds[0]["type"]
        both = [*(kind if isinstance(kind, list) else [kind]), "null"]
        return {**kinds[0], "type": both}  # errors name the value then
    made = {"type": schema["type"], **{key: schema[key] for key in _KEPT if key in schema}}
    if schema["type"] == "array":
        made["type"] = ["array", "string"]  # as in variables, separated by commas
        made["items"] = _plain(schema["items"], definitions) if "items" in schema else {}
    elif "properties" in schema:
        made["additionalProperties"] = False
        made["properties"] = {
            name: _plain(each, definitions) for name, each in schema["properties"].items()
        }
    return made
