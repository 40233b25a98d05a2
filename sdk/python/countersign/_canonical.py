"""The RFC 8785 form of JSON values: the bytes that digests of arguments are made of."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

MAX_SAFE = 2**53  # beyond it, two readers may take an integer for different numbers
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class NotCanonical(ValueError):
    """A value that has no RFC 8785 form, or that two readers could read differently."""


def parse(text: str | bytes) -> Any:
    """Decode JSON strictly: no key twice, no NaN, no number that a double cannot hold."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return json.loads(text, object_pairs_hook=_object, parse_int=_integer, parse_float=_decimal, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        raise e if isinstance(e, NotCanonical) else NotCanonical("not JSON in UTF-8") from e


def canonical(value: Any) -> bytes:
    """Return the RFC 8785 form of a value that json can write."""
    parts: list[str] = []
    try:
        _write(value, parts.append)
    except RecursionError as e:
        raise NotCanonical("nested too deeply") from e
    return "".join(parts).encode("utf-8")


def dump(value: Any) -> bytes:
    """Write a JSON value for the wire; refuse what the other side could read differently."""
    canonical(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotCanonical("a key is there twice")
    return found


def _integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > MAX_SAFE:
        raise NotCanonical("an integer beyond 2^53: send it as a text")
    return int(text)


def _decimal(text: str) -> float:
    value = float(text)
    try:
        exact = not math.isinf(value) and Decimal(text) == Decimal(repr(value))
    except ArithmeticError:  # an exponent beyond what decimal takes
        exact = False
    if not exact:
        raise NotCanonical("a number with more digits than a double can hold: send it as a text")
    return value


def _no_constant(name: str) -> Any:
    raise NotCanonical(f"{name} is no JSON number")


def _write(value: Any, put: Any) -> None:
    if value is None or isinstance(value, bool):
        put({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, str):
        put(_string(value))
    elif isinstance(value, (int, float)):
        put(_number(value))
    elif isinstance(value, dict):
        if not all(isinstance(k, str) for k in value):
            raise NotCanonical("a key is no text")
        put("{")
        for i, key in enumerate(sorted(value, key=_utf16)):
            put("," if i else "")
            put(_string(key) + ":")
            _write(value[key], put)
        put("}")
    elif isinstance(value, (list, tuple)):
        put("[")
        for i, item in enumerate(value):
            put("," if i else "")
            _write(item, put)
        put("]")
    else:
        raise NotCanonical(f"a {type(value).__name__} is no JSON value")


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


def _string(text: str) -> str:
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise NotCanonical("half of a surrogate pair")
    return '"' + "".join(_SHORT.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'


def _number(value: int | float) -> str:
    """The text that ECMAScript gives to a double."""
    if isinstance(value, int):
        if abs(value) > MAX_SAFE:
            raise NotCanonical("an integer beyond 2^53: send it as a text")
        return int.__repr__(value)  # a subclass, such as an enumeration, may write itself in words
    if math.isnan(value) or math.isinf(value):
        raise NotCanonical("a number that JSON cannot say")
    if value == 0:
        return "0"
    if value.is_integer() and abs(value) > MAX_SAFE:
        raise NotCanonical("an integer beyond 2^53: send it as a text")
    sign = "-" if value < 0 else ""
    digits, exponent = _digits(abs(float(value)))
    n, point = len(digits), len(digits) + exponent
    if n <= point <= 21:
        return sign + digits + "0" * (point - n)
    if 0 < point <= 21:
        return sign + digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + digits
    fraction = "." + digits[1:] if n > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"


def _digits(value: float) -> tuple[str, int]:
    """The shortest decimal digits of a positive double, and the exponent of the last one."""
    mantissa, _, exponent = float.__repr__(value).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    scale = int(exponent or 0) - len(fraction)
    stripped = digits.rstrip("0")
    scale += len(digits) - len(stripped)
    return stripped.lstrip("0"), scale
