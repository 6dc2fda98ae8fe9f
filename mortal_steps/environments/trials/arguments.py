"""Made-up arguments for tools that are tried out without a model."""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]


def made_up_arguments(tool: Schema, number: int) -> dict[str, Any]:
    """Return arguments for a tool by its JSON schema, other ones for each number. Even numbers
    leave out arguments that have a default."""
    parameters = tool["function"]["parameters"]
    required = parameters.get("required", ())
    return {
        name: _value(schema, number)
        for name, schema in parameters.get("properties", {}).items()
        if number % 2 or name in required
    }


def _value(schema: Schema, number: int) -> Any:
    if "enum" in schema:
        return schema["enum"][number % len(schema["enum"])]
    if "anyOf" in schema:
        return _value(schema["anyOf"][0], number)
    kind = schema.get("type", "string")
    match kind if isinstance(kind, str) else kind[0]:
        case "integer":
            return number + 1
        case "number":
            return number + 1.5
        case "boolean":
            return number % 2 == 0
        case "null":
            return None
        case "array" if "prefixItems" in schema:
            return [_value(each, number) for each in schema["prefixItems"]]
        case "array":
            return [_value(schema.get("items", {}), number)]
        case "object":
            values = schema.get("additionalProperties")
            return {"key": _value(values, number)} if isinstance(values, Mapping) else {}
        case _:
            return f"text {number + 1}"
