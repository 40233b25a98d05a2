"""Receipts: what an executor checks before it runs a tool. docs/security.md describes them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from . import _ed25519
from ._canonical import NotCanonical, canonical, parse

LEEWAY = timedelta(seconds=30)  # by which this clock may be behind the admitter's
_MAX_TOKEN, _MAX_RECORD = 16 << 10, 64 << 10
_TYPE = "countersign-receipt+jwt"
_CHECKPOINT_KEY = 1  # the type byte of a checkpoint key


class BadReceipt(Exception):
    """A receipt that permits nothing. code is stable: it is the one of the Go client."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return BadReceipt, (self.code, str(self))


@dataclass(frozen=True)
class Expectation:
    """The call that is about to run, as the executor knows it. None of the texts means any."""

    tenant: str
    source: str
    session: str
    tool_call_id: str
    tool: str
    arguments: Any = None  # a JSON value; None for a protocol without arguments


class Keyring:
    """The receipt keys for which a checkpoint key vouches.

    public_key is the checkpoint key (checkpoint.pub, public_key of the ready file); while it is being
    replaced, both keys, one a line. pinned: ids of the only receipt keys that count. records: key records and
    retirements that are known beforehand, see trust.
    """

    def __init__(self, public_key: str, pinned: Iterable[str] | None = None, records: Iterable[str] = ()) -> None:
        self._pinned = None if pinned is None else frozenset(pinned)
        self._vouchers = [_Verifier(line) for line in public_key.split()]
        if not self._vouchers:
            raise ValueError("there is no public key")
        self._keys: dict[str, bytes] = {}
        self._retired: set[str] = set()
        for record in records:
            self.trust(record)

    def trust(self, record: str) -> None:
        """Add a key record or a retirement, JSON (receipt.json and retired-*.json of an admitter; the members record
        and retirement of the lines of `countersign keys list --json`). A retired key stays retired, in any order of the records.

        Raises ValueError if no checkpoint key vouches for the record.
        """
        if not (self._retire(record) or self._learn(record)):
            raise ValueError("no checkpoint key that is trusted here vouches for this record")

    def check(self, receipt: str, key_record: str, want: Expectation, now: datetime | None = None) -> dict[str, Any]:
        """Return the claims of a receipt that permits exactly this call now; raise BadReceipt otherwise."""
        if not receipt:
            raise BadReceipt("receipt_missing", "there is no receipt")
        if key_record:
            self._learn(key_record)
        claims = self._open(receipt)
        _check_call(claims, want)
        _check_arguments(claims, want.arguments)
        if claims.get("verdict") != "allow":
            raise BadReceipt("receipt_not_allow", "the receipt's verdict is no allow")
        _check_time(claims, now or datetime.now(timezone.utc))
        return claims

    def _retire(self, record: str) -> bool:
        """Retire a key, if a checkpoint key vouches for the retirement; report whether it does."""
        if len(record) > _MAX_RECORD:
            return False
        try:
            r = parse(record)
            kid, vouch = r["kid"], r["vouch"]
            text = f"countersign/key-retired/v1\n{r['use']} {kid} {r['retired_at']}\n"
            _instant(r["retired_at"])
            well_formed = r["use"] == "receipt" and re.fullmatch("[0-9a-f]{16}", kid) and isinstance(vouch, str)
        except (ArithmeticError, KeyError, TypeError, ValueError):
            return False
        if not well_formed or not any(v.signed(vouch, text) for v in self._vouchers):
            return False
        self._retired.add(kid)
        return True

    def _learn(self, record: str) -> bool:
        """Keep a key, if a checkpoint key vouches for it; report whether it does."""
        if len(record) > _MAX_RECORD:
            return False
        try:
            r = parse(record)
            public = _base64url(r["public_key"])
            kid = hashlib.sha256(public).hexdigest()[:16]
            text = f"countersign/key/v1\n{r['use']} {r['kid']} {r['alg']} {r['public_key']}\n"
            well_formed = len(public) == 32 and (r["use"], r["alg"], r["kid"]) == ("receipt", "EdDSA", kid)
            vouch = r["vouch"]
        except (ArithmeticError, KeyError, TypeError, ValueError):
            return False
        if not (well_formed and isinstance(vouch, str) and any(v.signed(vouch, text) for v in self._vouchers)):
            return False
        if self._pinned is None or kid in self._pinned:
            self._keys[kid] = public
        return True

    def _open(self, receipt: str) -> dict[str, Any]:
        """Check the signature and the form of a receipt."""
        try:
            head, payload, signature = receipt.split(".")
            header = _base64url(head)
            kid = parse(header)["kid"]
            if len(receipt) > _MAX_TOKEN or not isinstance(kid, str) or header != canonical({"alg": "EdDSA", "kid": kid, "typ": _TYPE}):
                raise ValueError("not a receipt")
            body, signed = _base64url(payload), _base64url(signature)
        except (ArithmeticError, KeyError, TypeError, ValueError) as e:
            raise BadReceipt("receipt_malformed", "this is no receipt") from e
        public = self._keys.get(kid)
        if public is None:
            raise BadReceipt("receipt_key_unknown", "no trusted checkpoint key vouches for the key that signed it")
        if not _ed25519.verify(public, f"{head}.{payload}".encode(), signed):
            raise BadReceipt("receipt_signature_invalid", "the signature does not match")
        try:
            claims = parse(body)
            if not isinstance(claims, dict) or canonical(claims) != body or not _well_formed(claims):
                raise NotCanonical("not the form of a receipt")
        except (ArithmeticError, KeyError, TypeError, ValueError) as e:
            raise BadReceipt("receipt_malformed", "the claims are not in their one form") from e
        if kid in self._retired:
            raise BadReceipt("receipt_key_retired", "the key that signed it was retired; ask again")
        return claims


class _Verifier:
    """A key of signed notes: name, key id and Ed25519 public key."""

    def __init__(self, text: str) -> None:
        try:
            self.name, key_id, rest = text.split("+", 2)
            raw = base64.b64decode(rest, validate=True)
        except (ValueError, binascii.Error) as e:
            raise ValueError("the public key is no checkpoint key: want name+id+key") from e
        self.id = hashlib.sha256(self.name.encode() + b"\n" + raw).digest()[:4]
        if len(raw) != 33 or raw[0] != _CHECKPOINT_KEY or self.id.hex() != key_id:
            raise ValueError("the public key is no checkpoint key: its id does not fit")
        self.public = raw[1:]

    def signed(self, note: str, text: str) -> bool:
        """Report whether a note has this text and a signature of this key."""
        body, blank, lines = note.rpartition("\n\n")
        if not blank or body + "\n" != text:
            return False
        for line in lines.splitlines():
            m = re.fullmatch("— ([^ +]+) (\\S+)", line)
            try:
                raw = base64.b64decode(m[2], validate=True) if m else b""
            except ValueError:
                return False
            if m and m[1] == self.name and raw[:4] == self.id:
                return _ed25519.verify(self.public, text.encode(), raw[4:])
        return False


_NEEDED = {"decision_id", "tenant", "source", "nonce", "verdict", "issued_at", "expires_at"}
_TEXTS = _NEEDED | {"session", "tool_call_id", "tool", "args_salt", "args_hash", "use_until", "mode"}
_CLAIMS = _TEXTS | {"v", "policy", "mandate"}
_SALT_SIZE = 16


def _well_formed(claims: dict[str, Any]) -> bool:
    """Report whether claims are those of a receipt (invalidReason in Go)."""
    if (type(claims.get("v")), claims.get("v")) != (int, 1) or not _NEEDED <= claims.keys() <= _CLAIMS:
        return False
    if not all(isinstance(claims[name], str) and claims[name] for name in _TEXTS & claims.keys()):
        return False
    issued, expires = _instant(claims["issued_at"]), _instant(claims["expires_at"])
    lifetime = expires - issued
    if claims["verdict"] not in ("allow", "ask", "defer", "deny") or not timedelta(seconds=1) <= lifetime <= timedelta(days=1):
        return False
    if claims.get("mode", "observe") != "observe":
        return False
    if "use_until" in claims and _instant(claims["use_until"]) < expires or ("args_salt" in claims) != ("args_hash" in claims):
        return False
    return "args_salt" not in claims or len(_base64url(claims["args_salt"])) == _SALT_SIZE


_SAME = [
    ("tenant", "receipt_other_tenant"),
    ("source", "receipt_other_source"),
    ("session", "receipt_other_session"),
    ("tool_call_id", "receipt_other_tool_call"),
    ("tool", "receipt_other_tool"),
]


def _check_call(claims: dict[str, Any], want: Expectation) -> None:
    for name, code in _SAME:
        if claims.get(name, "") != getattr(want, name):
            raise BadReceipt(code, f"the receipt is of another {name}")


def _check_arguments(claims: dict[str, Any], arguments: Any) -> None:
    salt, digest = claims.get("args_salt", ""), claims.get("args_hash", "")  # texts: the claims are well-formed
    if arguments is None and not digest:
        return
    if arguments is None:
        raise BadReceipt("receipt_other_arguments", "the receipt binds arguments, and the call has none")
    if not digest:
        raise BadReceipt("receipt_binds_no_arguments", "the receipt binds no arguments, and the call has some")
    try:
        mac = hmac.new(_base64url(salt), canonical(arguments), hashlib.sha256)
    except (NotCanonical, TypeError, ValueError) as e:
        raise BadReceipt("receipt_other_arguments", "the arguments have no digest") from e
    if not hmac.compare_digest(b"salted-sha256:" + mac.hexdigest().encode(), digest.encode()):
        raise BadReceipt("receipt_other_arguments", "the receipt is of other arguments")


def _check_time(claims: dict[str, Any], now: datetime) -> None:
    try:
        issued, expires = _instant(claims["issued_at"]), _instant(claims["expires_at"])
    except (KeyError, TypeError, ValueError) as e:
        raise BadReceipt("receipt_malformed", "the receipt does not say when it holds") from e
    if now + LEEWAY < issued:
        raise BadReceipt("receipt_not_yet_valid", "the receipt does not hold yet")
    if now >= expires:
        raise BadReceipt("receipt_expired", "the receipt has expired")


def use_until(claims: dict[str, Any]) -> float:
    """Return when no receipt of an allowance holds any more, in seconds since 1970: it may have several."""
    return _instant(claims.get("use_until", claims["expires_at"])).timestamp()


def _instant(text: str) -> datetime:
    """Read an RFC 3339 time in UTC; digits below a microsecond are dropped."""
    m = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z", text)
    if not m:
        raise ValueError("not a time in UTC")
    micros = int((m[2] or "").ljust(6, "0")[:6])
    return datetime.fromisoformat(m[1]).replace(microsecond=micros, tzinfo=timezone.utc)


def _base64url(text: str) -> bytes:
    """Decode unpadded base64url in its one spelling."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if base64.urlsafe_b64encode(raw).decode().rstrip("=") != text:
        raise ValueError("not base64url in its one spelling")
    return raw
