"""What the columns of a table hold beyond how Arrow stores them.

    Json()           text that stands for any value: decoded, as `datasets` decodes it
    Array2D()        nested lists, as they are stored
    arrow.bool8      a byte that is true or false, which pyarrow decodes
    Image(), Audio() the bytes or the path of a file that no model gets here: refused
    other types      arrow.uuid, a tensor, a geometry: refused, as their values would differ from
                     what is stored, and from one machine to the next

A table says so in two ways: by extension types of Arrow, and by the features that `datasets` writes
into the metadata.
"""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from mortal_steps.data.values import TEXT_ALONE
from mortal_steps.errors import DataError

MEDIA = ("Image", "Audio", "Video", "Pdf", "Nifti")
"""Features of `datasets` whose values are made of a file."""
JSON = "arrow.json"
AS_STORED = ("arrow.bool8", "datasets.features.")
"""Beginnings of the names of extension types that need no decoding."""
EXTENSION = b"ARROW:extension:name"
"""Where Arrow's metadata name a type that is not registered in this process."""

Decoder = Callable[[Any], Any]
"""Makes of a value as it is stored the value that it stands for."""


def features_of(schema: Any) -> Mapping[str, Any]:
    """Return the features that `datasets` wrote into the metadata of a file; empty without any."""
    written = (schema.metadata or {}).get(b"huggingface")
    found = json.loads(written) if written else {}
    features: Mapping[str, Any] = (found.get("info") or {}).get("features") or {}
    return features


def refuse_media(features: Mapping[str, Any], origin: str) -> None:
    """Raise `DataError` for a column of pictures, audio or video; `features` as `to_dict` gives
    them."""
    for name, feature in features.items():
        if kind := _media_in(feature):
            raise DataError(
                f"{origin}: its column {name!r} is of the type {kind}(), and {TEXT_ALONE}; leave "
                f"it out with data.drop_columns = [{name!r}]"
            )


def _media_in(feature: Any) -> str | None:
    if isinstance(feature, Mapping):
        kind = feature.get("_type")
        if kind in MEDIA:
            return str(kind) if feature.get("decode", True) else None
        feature = list(feature.values())
    inner = feature if isinstance(feature, list) else ()
    return next((kind for one in inner if (kind := _media_in(one))), None)


def dates_in(features: Mapping[str, Any]) -> list[str]:
    """Return the columns that contain dates with times."""
    return [name for name, feature in features.items() if _has_dates(feature)]


def _has_dates(feature: Any) -> bool:
    if isinstance(feature, Mapping):
        if feature.get("_type") == "Value":
            return str(feature.get("dtype")).startswith("timestamp")
        feature = list(feature.values())
    return isinstance(feature, list) and any(map(_has_dates, feature))


def decoders(schema: Any, origin: str, dropped: Collection[str]) -> Mapping[str, Decoder]:
    """Return how to decode each column of a schema that needs it, but for those that are `dropped`.
    Raises `DataError` for a column whose type has no meaning here."""
    features = {n: f for n, f in features_of(schema).items() if n not in dropped}
    refuse_media(features, origin)
    found = {
        field.name: _decoder(
            field, features.get(field.name), f"{origin}: its column {field.name!r}"
        )
        for field in schema
        if field.name not in dropped
    }
    return {name: decoder for name, decoder in found.items() if decoder is not None}


def _decoder(field: Any, feature: Any, origin: str) -> Decoder | None:
    """Return how a field is decoded; None: it is as it is stored."""
    import pyarrow

    kind = field.type
    unregistered = (field.metadata or {}).get(EXTENSION, b"").decode(errors="replace")
    extension = getattr(kind, "extension_name", unregistered)
    if extension == JSON:
        return None if _is_left_as_text(feature) else _json_decoder()
    if extension.startswith(AS_STORED):
        return None
    if extension:
        raise DataError(
            f"{origin} has the Arrow type {extension}, of which MORTAL knows no more than how it "
            "is stored; convert it to text, numbers or lists, or leave it out with "
            "data.drop_columns"
        )
    if pyarrow.types.is_struct(kind):
        within = feature if isinstance(feature, Mapping) else {}
        fields = {one.name: _decoder(one, within.get(one.name), origin) for one in kind}
        return _of_fields({name: one for name, one in fields.items() if one is not None})
    if pyarrow.types.is_map(kind):
        both = (_decoder(one, None, origin) for one in (kind.key_field, kind.item_field))
        return _of_pairs(*both)
    if hasattr(kind, "value_field"):  # any kind of list
        inner = feature.get("feature") if isinstance(feature, Mapping) else None
        return _of_items(_decoder(kind.value_field, inner, origin))
    return None


def _is_left_as_text(feature: Any) -> bool:
    return isinstance(feature, Mapping) and not feature.get("decode", True)


def _json_decoder() -> Decoder:
    """Return the decoder of `datasets`, whose numbers differ from Python's in the last digit."""
    from datasets import Json

    decode: Decoder = Json().decode_example
    return decode


def _of_fields(fields: Mapping[str, Decoder]) -> Decoder | None:
    if not fields:
        return None

    def decoded(value: Any) -> Any:
        if value is None:
            return None
        return {**value, **{name: decode(value[name]) for name, decode in fields.items()}}

    return decoded


def _of_items(decode: Decoder | None) -> Decoder | None:
    if decode is None:
        return None
    return lambda values: None if values is None else [decode(value) for value in values]


def _of_pairs(decode_key: Decoder | None, decode_item: Decoder | None) -> Decoder | None:
    if decode_key is None and decode_item is None:
        return None
    key, item = decode_key or _same, decode_item or _same
    return lambda pairs: None if pairs is None else [(key(k), item(v)) for k, v in pairs]


def _same(value: Any) -> Any:
    return value
