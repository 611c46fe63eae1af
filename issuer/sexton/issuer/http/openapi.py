"""The API's description of itself: bodies and answers are msgspec's, which the framework does not know."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Response

from sexton.issuer import wire
from sexton.issuer.operations import OPERATIONS
from sexton.issuer.views import VIEWS

__all__ = ["documented", "with_schemas"]

_OTHERS = (*(view.answer for view in VIEWS), wire.Problem)


def documented(body: Any, answer: Any) -> dict[str, Any]:
    """Return what describes a call that takes `body` (None: nothing) and gives `answer`."""

    def schema(cls: Any) -> dict[str, Any]:
        return {"schema": {"$ref": f"#/components/schemas/{cls.__name__}"}}

    documented: dict[str, Any] = {
        "response_class": Response,
        "responses": {
            200: {"content": {"application/json": schema(answer)}},
            "default": {"content": {"application/problem+json": schema(wire.Problem)}, "description": "no"},
        },
    }
    if body is not None:
        content = {"application/json": schema(body)}
        documented["openapi_extra"] = {"requestBody": {"required": True, "content": content}}
    return documented


def with_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """Add the schemas that `documented` refers to."""
    described = (*OPERATIONS, *(each.answer for each in OPERATIONS), *_OTHERS)
    _, schemas = msgspec.json.schema_components(described, ref_template="#/components/schemas/{name}")
    document.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
    return document
