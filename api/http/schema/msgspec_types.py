"""Lets msgspec types stand in the signatures of FastAPI endpoints.

msgspec checks and encodes the values, as it does on the hot path, so that there is one set of
types. FastAPI documents them: its OpenAPI document refers to a struct by a URL under `STRUCTS`,
which `openapi.py` turns into a component of the document.
"""

from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Body
from fastapi.responses import JSONResponse
from pydantic import GetCoreSchemaHandler, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import CoreSchema

T = TypeVar("T")

STRUCTS = "https://structs.dzflow.invalid/"
"""Begins the URL of a struct: pydantic refuses all other references that it does not know."""


class Checked:
    """msgspec checks the value: a body, or the text of a parameter if `kind` says what it is."""

    def __init__(self, kind: Any = None) -> None:
        self._kind = kind

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """How pydantic checks and documents the value."""
        kind, strict = (source, True) if self._kind is None else (self._kind, False)

        def check(value: object) -> object:
            try:
                return msgspec.convert(value, kind, strict=strict)
            except msgspec.ValidationError as error:
                raise ValueError(str(error)) from None

        return handler.generate_schema(Annotated[Any, PlainValidator(check), schema_of(kind)])


class Encoded:
    """msgspec encodes the value: an answer."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """How pydantic encodes and documents the value."""
        return handler.generate_schema(Annotated[Any, PlainSerializer(_encode), schema_of(source)])


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


class JsonResponse(JSONResponse):
    """An answer whose content was encoded already, by `Encoded`."""

    def render(self, content: str) -> bytes:
        """The content as it is sent."""
        return content.encode()


def schema_of(kind: Any) -> WithJsonSchema:
    """The JSON schema of a type, as msgspec sees it."""
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=f"{STRUCTS}{{name}}")
    return WithJsonSchema(schema)


JsonBody = Annotated[T, Checked(), Body()]
"""The body of a request."""

Json = Annotated[T, Encoded()]
"""An answer."""
