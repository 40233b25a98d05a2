"""Ed25519 verification: by cryptography if it is installed, else in Python (some milliseconds).

Only public data are handled here, so the time that it takes tells nothing.
"""

from __future__ import annotations

import hashlib

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
except ImportError:  # the standard library has no Ed25519
    Ed25519PublicKey = None  # type: ignore[assignment, misc]

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)  # of minus one
_Point = tuple[int, int, int, int]


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Report whether a signature is that of a message under a public key."""
    if len(public) != 32 or len(signature) != 64:
        return False
    if Ed25519PublicKey is None:
        return verify_in_python(public, message, signature)
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def verify_in_python(public: bytes, message: bytes, signature: bytes) -> bool:
    """RFC 8032, section 5.1.7, without the cofactor."""
    a, s = _decode(public), int.from_bytes(signature[32:], "little")
    if a is None or s >= _ORDER:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % _ORDER
    negative = (_P - a[0], a[1], 1, _P - a[3])
    return _encode(_add(_times(s, _BASE), _times(k, negative))) == signature[:32]


def _decode(b: bytes) -> _Point | None:
    n = int.from_bytes(b, "little")
    y, sign = n & (1 << 255) - 1, n >> 255
    x = _x_of(y, sign)
    return None if x is None else (x, y, 1, x * y % _P)


def _x_of(y: int, sign: int) -> int | None:
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if x * x % _P != square:
        x = x * _ROOT % _P
    if x * x % _P != square or x == 0 and sign:
        return None
    return x if x & 1 == sign else _P - x


def _add(p: _Point, q: _Point) -> _Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % _P, (p[1] + p[0]) * (q[1] + q[0]) % _P
    c, d = 2 * p[3] * q[3] * _D % _P, 2 * p[2] * q[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(n: int, p: _Point) -> _Point:
    total: _Point = (0, 1, 1, 0)
    while n:
        if n & 1:
            total = _add(total, p)
        p, n = _add(p, p), n >> 1
    return total


def _encode(p: _Point) -> bytes:
    inverse = pow(p[2], -1, _P)
    x, y = p[0] * inverse % _P, p[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


_Y = 4 * pow(5, -1, _P) % _P
_X = _x_of(_Y, 0)
assert _X is not None
_BASE: _Point = (_X, _Y, 1, _X * _Y % _P)
