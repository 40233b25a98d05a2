"""Signed texts: notes, checkpoints, witnesses, and the signatures of records."""

import base64
import binascii
import hashlib
import re

import ed25519
import merkle

ORIGIN = "countersign.dev/"
KEY_NAME = "countersign.dev/checkpoint"
LOG, WITNESS = 1, 4  # type bytes of keys


class Bad(Exception):
    """Something that does not hold; the text says what."""


def standard(text):
    """Strict base64."""
    try:
        b = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as e:
        raise Bad("not base64") from e
    if base64.b64encode(b).decode() != text:
        raise Bad("not base64 in its one spelling")
    return b


def utf8(raw):
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as e:
        raise Bad("not UTF-8") from e


def url(text):
    """Strict base64url without padding."""
    if not re.fullmatch(r"[A-Za-z0-9_-]*", text):
        raise Bad("not unpadded base64url")
    try:
        b = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as e:
        raise Bad("not base64url") from e
    if base64.urlsafe_b64encode(b).decode().rstrip("=") != text:
        raise Bad("not base64url in its one spelling")
    return b


class Key:
    """A verifier key: name, key id and public key, of one type."""

    def __init__(self, text, kind):
        try:
            self.name, key_id, rest = text.strip().split("+", 2)
        except ValueError as e:
            raise Bad("not a verifier key: want name+id+key") from e
        raw = standard(rest)
        if len(raw) != 33 or raw[0] != kind:
            raise Bad("not an Ed25519 verifier key of type %d" % kind)
        self.kind, self.public = kind, raw[1:]
        self.id = hashlib.sha256(self.name.encode() + b"\n" + raw).digest()[:4]
        if self.id.hex() != key_id:
            raise Bad("the key id does not fit the key")

    def signed(self, text, signature):
        """Whether signature is this key's over a note's text."""
        if self.kind == LOG:
            return ed25519.verify(self.public, text, signature)
        if len(signature) != 72:
            return False
        seconds = int.from_bytes(signature[:8], "big")
        message = b"cosignature/v1\ntime %d\n" % seconds + text
        return seconds < 2**63 and ed25519.verify(self.public, message, signature[8:])


def open_note(raw, key):
    """The text of a note that a key signed. Other keys' lines are passed over."""
    return opened(raw, key)[0]


def opened(raw, key):
    """The text of a note and the key's signature."""
    head, blank, lines = raw.rpartition(b"\n\n")
    if not blank or not lines.endswith(b"\n") or re.search(rb"[\x00-\x09\x0b-\x1f]", raw):
        raise Bad("not a signed note")
    text, found = head + b"\n", False
    for line in utf8(lines).split("\n")[:-1]:
        m = re.fullmatch("— ([^\\s+]+) (\\S+)", line)
        if not m:
            raise Bad("a line of the signatures is none")
        signature = standard(m[2])
        if len(signature) < 5:
            raise Bad("a line of the signatures is none")
        if m[1] != key.name or signature[:4] != key.id or found:
            continue
        if not key.signed(text, signature[4:]):
            raise Bad("the signature of %s does not match the text" % key.name)
        found = signature[4:]
    if not found:
        raise Bad("not signed by %s" % key.name)
    return utf8(text), found


class Checkpoint:
    def __init__(self, raw, key):
        text, signature = opened(raw, key)
        # When a witness signed, by its own clock, in seconds since 1970.
        self.seconds = int.from_bytes(signature[:8], "big") if key.kind == WITNESS else None
        m = re.match(r"([^\n]+)\n(0|[1-9][0-9]*)\n([^\n]+)\n", text)
        if not m or not m[1].startswith(ORIGIN):
            raise Bad("not origin, size and root")
        self.shard, self.size, self.root = m[1][len(ORIGIN):], int(m[2]), standard(m[3])
        if len(self.root) != 32 or not re.fullmatch(r"[\x21-\x2a\x2c-\x7e]{1,200}", self.shard):
            raise Bad("the shard or the root is malformed")


def vouched(record, key):
    """The public key of a key record that the checkpoint key vouches for."""
    public = url(record["public_key"])
    kid = hashlib.sha256(public).hexdigest()[:16]
    if len(public) != 32 or record["use"] != "receipt" or record["alg"] != "EdDSA" or record["kid"] != kid:
        raise Bad("not a receipt key with the id of its public key")
    want = "countersign/key/v1\n%s %s %s %s\n" % (record["use"], record["kid"], record["alg"], record["public_key"])
    if open_note(record["vouch"].encode(), key) != want:
        raise Bad("the vouch is for another key")
    return kid, public


def retired(record, key):
    """The id of a key that the checkpoint key takes back."""
    want = "countersign/key-retired/v1\n%s %s %s\n" % (record["use"], record["kid"], record["retired_at"])
    if record["use"] != "receipt" or open_note(record["vouch"].encode(), key) != want:
        raise Bad("the retirement is of another key")
    return record["kid"]


def read_signature(value, record):
    """The key id, the signed message and the signature of a record that was signed alone or with others."""
    token, index, size, path = value, None, None, None
    if "~" in value:
        m = re.fullmatch(r"([^~]*)~(0|[1-9][0-9]*)~([1-9][0-9]*)~([^~]+)", value)
        if not m:
            raise Bad("not a share of a signature")
        token, index, size, hashes = m[1], int(m[2]), int(m[3]), url(m[4])
        if not 2 <= size <= 1024 or index >= size or len(hashes) % 32:
            raise Bad("not a share of a signature")
        path = [hashes[i:i + 32] for i in range(0, len(hashes), 32)]
    payload, kind = record, b"countersign-record+jws"
    if path is not None:
        top = merkle.climb(index, size, merkle.leaf(record), path)
        if top is None:
            raise Bad("the proof in the signature does not fit its size")
        payload, kind = b"countersign/batch/v1\n%d\n%s\n" % (size, base64.b64encode(top)), b"countersign-batch+jws"
    parts = token.split(".")
    if len(parts) != 3 or parts[1]:
        raise Bad("not a detached JWS")
    head = re.fullmatch(rb'\{"alg":"EdDSA","kid":"(.{16})","typ":"' + re.escape(kind) + rb'"\}', url(parts[0]), re.DOTALL)
    if not head:
        raise Bad("not an EdDSA signature of type " + kind.decode())
    message = parts[0] + "." + base64.urlsafe_b64encode(payload).decode().rstrip("=")
    return head[1].decode("latin-1"), message.encode(), url(parts[2])


def check_signature(value, record, keys):
    """The id of the key that signed a record."""
    kid, message, signature = read_signature(value, record)
    if kid not in keys:
        raise Bad("signed with key %s, which nobody vouches for" % kid)
    if not ed25519.verify(keys[kid], message, signature):
        raise Bad("not what key %s signed" % kid)
    return kid
