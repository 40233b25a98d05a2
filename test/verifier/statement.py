"""The statement over a bundle: an in-toto statement in a DSSE envelope."""

import base64
import hashlib

import canonical
import ed25519
from signed import Bad, standard, url

PAYLOAD = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://schemas.countersign.dev/countersign/bundle-statement/v1"
NAME = "statement.dsse.json"


def check(bundle):
    """The id of the key that signed the statement of a bundle. Whose key it is,
    the file cannot show."""
    raw = bundle.files[NAME]
    if not raw.endswith(b"\n"):
        raise Bad("it does not end with a line feed")
    envelope = canonical.check(raw[:-1])
    if set(envelope) != {"payload", "payloadType", "signatures"} or envelope["payloadType"] != PAYLOAD or len(envelope["signatures"]) != 1:
        raise Bad("not an envelope with one signature")
    payload, signature = standard(envelope["payload"]), envelope["signatures"][0]
    s = canonical.check(payload)
    public = url(s["predicate"]["public_key"])
    if signature["keyid"] != hashlib.sha256(public).hexdigest()[:16]:
        raise Bad("the key id is another key's")
    message = b"DSSEv1 %d %s %d %s" % (len(PAYLOAD), PAYLOAD.encode(), len(payload), payload)
    if not ed25519.verify(public, message, standard(signature["sig"])):
        raise Bad("not what the key in it signed")
    others = sorted((m for m in bundle.members if m.name != NAME), key=lambda m: m.name)
    want = [{"name": m.name, "digest": {"sha256": m.digest(hashlib.sha256())}} for m in others]
    if (s["_type"], s["predicateType"], s["subject"]) != (STATEMENT, PREDICATE, want):
        raise Bad("not a statement over the other members")
    check_predicate(bundle, s["predicate"])
    return signature["keyid"]


def check_predicate(bundle, predicate):
    if not bundle.checkpoint or not bundle.ends:
        return
    c = bundle.checkpoint
    want = dict(bundle.predicate(), checkpoint={"size": c.size, "root": base64.b64encode(c.root).decode()}, public_key=predicate["public_key"])
    if canonical.write(predicate) != canonical.write(want):  # to Python, true is 1
        raise Bad("it speaks of another bundle")
