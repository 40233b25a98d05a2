"""RFC 8785 (JCS): is a text the one spelling of what it says?"""

import json


class NotCanonical(Exception):
    pass


class Number(float):
    """A JSON number. All of them are doubles here, as in RFC 8785."""


def _pairs(pairs):
    keys = [k for k, _ in pairs]
    if len(set(keys)) != len(keys):
        raise NotCanonical("a key is there twice")
    return dict(pairs)


def _constant(name):
    raise NotCanonical(name + " is no JSON number")


def parse(raw):
    """Decodes JSON bytes; numbers become Number."""
    try:
        text = raw.decode("utf-8")
        return json.loads(text, object_pairs_hook=_pairs, parse_int=Number, parse_float=Number, parse_constant=_constant)
    except (UnicodeDecodeError, ValueError, RecursionError) as e:
        raise NotCanonical("not JSON in UTF-8") from e


def number(value):
    """ECMAScript's text of a double."""
    if value == 0:
        return "0"
    if value != value or value in (float("inf"), float("-inf")):
        raise NotCanonical("a number that JSON cannot say")
    mantissa, _, exponent = repr(abs(float(value))).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    sign, n = "-" if value < 0 else "", len(digits)
    if n <= point <= 21:
        return sign + digits + "0" * (point - n)
    if 0 < point <= 21:
        return sign + digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + digits
    power = ("+" if point > 0 else "-") + str(abs(point - 1))
    return sign + digits[0] + ("." + digits[1:] if n > 1 else "") + "e" + power


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def string(value):
    out = []
    for c in value:
        if c in _ESCAPES:
            out.append(_ESCAPES[c])
        elif c < " ":
            out.append("\\u%04x" % ord(c))
        elif "\ud800" <= c <= "\udfff":
            raise NotCanonical("half of a surrogate pair")
        else:
            out.append(c)
    return '"' + "".join(out) + '"'


def write(value):
    """The RFC 8785 form of a decoded value, in bytes."""
    out = []
    _write(value, out)
    return "".join(out).encode("utf-8")


def _write(value, out):
    if value is None:
        out.append("null")
    elif value is True or value is False:
        out.append("true" if value else "false")
    elif isinstance(value, str):
        out.append(string(value))
    elif isinstance(value, (int, float)):
        out.append(number(value))
    elif isinstance(value, list):
        out.append("[")
        for i, one in enumerate(value):
            out.append("," if i else "")
            _write(one, out)
        out.append("]")
    else:
        out.append("{")
        for i, key in enumerate(sorted(value, key=lambda k: k.encode("utf-16-be", "surrogatepass"))):
            out.append(("," if i else "") + string(key) + ":")
            _write(value[key], out)
        out.append("}")


def check(raw):
    """Decodes a text that must be canonical."""
    value = parse(raw)
    if write(value) != raw:
        raise NotCanonical("not in the form of RFC 8785")
    return value
