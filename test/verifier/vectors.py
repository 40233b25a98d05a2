"""The worked example of docs/evidence-format.md: example.md, checked against the page."""

import base64
import hashlib
import hmac
import json
import re

import aes
import canonical
import ed25519
import merkle
from record import Record, find
from signed import Bad, Checkpoint, Key, check_signature, retired, standard, vouched


TRANSPORT = ("Nats-Expected-Stream", "Nats-Expected-Last-Sequence", "Nats-Expected-Last-Msg-Id", "Nats-Expected-Last-Subject-Sequence",
             "Nats-Expected-Last-Subject-Sequence-Subject", "Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit")


def blocks(page):
    """The fenced blocks of the example, each with the words above it."""
    _, _, example = page.partition("<!-- vectors:")
    found = re.findall(r"\n([^\n]+)\n\n```\n(.*?)\n?```\n", example.partition("<!-- end of vectors -->")[0], re.S)
    return [(title.strip(), text.rstrip("\n").split("\n")) for title, text in found]


class Example:
    def __init__(self, page):
        self.done, self.failures = 0, []
        self.records, self.leaves, self.message = [], [], None
        for title, lines in blocks(page):
            for start, check in CHECKS.items():
                if title.startswith(start):
                    try:
                        check(self, lines)
                    except (Bad, canonical.NotCanonical, ValueError, KeyError, IndexError, TypeError, AttributeError) as e:
                        self.failures.append("%s %r" % (title, e))

    def same(self, what, got, want):
        self.done += 1
        if got != want:
            self.failures.append("%s: %s, the page says %s" % (what, got, want))

    def read_keys(self, lines):
        self.tenant_key, self.session_key, seed, self.receipt_seed = (bytes.fromhex(x) for x in lines[:4])
        self.key = Key(lines[4], 1)
        self.same("public key of the checkpoint seed", self.key.public.hex(), ed25519.public_key(seed).hex())
        public = ed25519.public_key(self.receipt_seed)
        self.receipt = {hashlib.sha256(public).hexdigest()[:16]: public}

    def read_message(self, lines):
        self.message = {"subject": lines[0], "time": lines[1], "headers": json.loads(lines[2]) or {}, "body": base64.b64decode(lines[3])}

    def read_record(self, lines):
        r, m = Record(lines[0].encode()), self.message
        self.records.append(r)
        self.same("sequence", r.seq, len(self.records))
        self.same("subject, time", (r.all["subject"], r.all["broker_time"]), (m["subject"], m["time"]))
        digest = "sha256:" + hashlib.sha256(m["body"]).hexdigest()
        if r.all["redactions"] or r.reason:
            digest = self.digest(r, m["body"])
        self.same("body digest of %d" % r.seq, r.all["body_digest"], digest)
        untouched = {name for name in r.headers if not any(red["path"].startswith("/headers/" + name + "/") for red in r.all["redactions"])}
        self.same("headers of %d" % r.seq, {n for n in m["headers"] if n not in TRANSPORT}, set(r.headers))
        self.same("header values of %d" % r.seq, {n: m["headers"].get(n) for n in untouched}, {n: r.headers[n] for n in untouched})
        if not r.reason:
            self.check_commitments(r, m)
        if r.kind == "decision":
            self.same("signer", check_signature(r.header("Countersign-Signature"), m["body"], self.receipt), list(self.receipt)[0])

    def digest(self, r, body):
        """Under the session's key, or the tenant's where there is no session."""
        if not r.all["session"]:
            return "hmac-sha256:" + hmac.new(self.tenant_key, body, hashlib.sha256).hexdigest()
        key = hmac.new(self.session_key, b"countersign/digest/v1", hashlib.sha256).digest()
        name = hashlib.sha256(b"countersign/digest-id/v1\x00" + key).hexdigest()[:16]
        return "session-hmac-sha256:%s:%s" % (name, hmac.new(key, hashlib.sha256(body).digest(), hashlib.sha256).hexdigest())

    def check_commitments(self, r, m):
        original = {"body": canonical.parse(m["body"]), "headers": m["headers"]}
        taken, spots = {}, {}
        for i, red in enumerate(r.all["redactions"]):
            spots.setdefault(red["path"], []).append(i)
        for path, indexes in spots.items():
            before, (there, after, _) = find(original, path)[1], find(r.all, path)
            if r.all["redactions"][indexes[0]].get("action") == "truncate":
                after = None  # all of it counts as taken out
            taken.update(zip(indexes, removed(before, after if there else None, len(indexes))))
        for i, red in enumerate(r.all["redactions"]):
            form, value = taken[i]
            path = red["path"].encode()
            message = b"countersign/commitment/v1\x00" + r.seq.to_bytes(8, "big") + i.to_bytes(4, "big") + len(path).to_bytes(4, "big") + path + form + value
            self.same("commitment %d of %d" % (i, r.seq), red["commitment"], "hmac-sha256:" + hmac.new(self.session_key, message, hashlib.sha256).hexdigest())
            self.check_join(r, red, value)

    def check_join(self, r, red, value):
        """Digests in marks: what the same value always gives."""
        token = b"countersign/token/v1\x00"
        purposes = {"hash": (self.session_key, b"countersign/hash/v1\x00", "h"), "tokenise": (self.tenant_key, token, "t")}
        if red.get("action") not in purposes:
            return
        key, purpose, letter = purposes[red["action"]]
        if letter == "t" and ":s-" in find(r.all, red["path"])[1]:
            key, letter = self.session_key, "s"
        if red["detector"] == "email":
            value = value.decode().lower().encode()
        if red["detector"] in ("phone", "payment_card", "iban", "national_id"):
            value = re.sub(rb"[^A-Z0-9]", b"", value.upper())
        digest = hmac.new(key, purpose + value, hashlib.sha256).hexdigest()[:32]
        self.same("mark at " + red["path"], "[redacted:%s:%s-%s]" % (red["detector"], letter, digest) in find(r.all, red["path"])[1], True)

    def read_hashes(self, lines):
        r = self.records[-1]
        self.leaves.append(merkle.leaf(r.hash))
        self.same("record hash, leaf hash of %d" % r.seq, [r.hash.hex(), self.leaves[-1].hex()], lines)
        heads = [x.hash.hex() for x in self.records[:-1] if x.session == r.session and x.session]
        self.same("place of %d" % r.seq, (r.index, r.prev), (len(heads) + 1, heads[-1] if heads else None) if r.session else (None, None))

    def read_checkpoint(self, lines):
        self.checkpoint = Checkpoint("\n".join(lines).encode() + b"\n", self.key)
        self.same("checkpoint", (self.checkpoint.size, self.checkpoint.root.hex()), (len(self.leaves), merkle.root(self.leaves).hex()))

    def read_inclusion(self, lines):
        path = [standard(line) for line in lines]
        self.same("inclusion of 2", merkle.climb(1, self.checkpoint.size, self.leaves[1], path), self.checkpoint.root)
        self.same("inclusion of 3 by the proof of 2", merkle.climb(2, self.checkpoint.size, self.leaves[2], path) == self.checkpoint.root, False)

    def read_key_record(self, lines):
        kid, public = vouched(canonical.check(lines[0].encode()), self.key)
        self.same("vouched key", {kid: public}, self.receipt)

    def read_retirement(self, lines):
        self.same("retired key", retired(canonical.check(lines[0].encode()), self.key), list(self.receipt)[0])

    def read_batch(self, lines):
        pairs = list(zip(lines[::2], lines[1::2]))
        for record, value in pairs:
            self.same("signer of a share", check_signature(value, record.encode(), self.receipt), list(self.receipt)[0])
        try:
            check_signature(pairs[0][1], pairs[1][0].encode(), self.receipt)
            self.failures.append("another record's share verifies")
        except Bad:
            self.done += 1

    def read_consistency(self, lines):
        old, path = standard(lines[0]), [standard(line) for line in lines[1:]]
        self.same("root of the first 3", merkle.root(self.leaves[:3]), old)
        for size, want in ((3, True), (2, False), (4, False)):
            self.same("consistency from %d" % size, merkle.consistent(size, old, self.checkpoint.size, self.checkpoint.root, path), want)

    def read_witness(self, lines):
        witness, raw = Key(lines[1], 4), "\n".join(lines[2:]).encode() + b"\n"
        self.same("public key of the witness", witness.public, ed25519.public_key(bytes.fromhex(lines[0])))
        self.same("what the witness signed", Checkpoint(raw, witness).root, Checkpoint(raw, self.key).root)

    def read_session_key(self, lines):
        key, nonce, wrapped = (bytes.fromhex(x) for x in lines)
        first = self.records[0]
        additional = b"countersign/session-key/v1\x00" + len(first.tenant.encode()).to_bytes(4, "big") + first.tenant.encode() + first.session.encode()
        self.same("head of the wrapped key", wrapped[:13], b"\x01" + nonce)
        self.same("session key", aes.open_gcm(key, nonce, wrapped[13:], additional), self.session_key)


def removed(before, after, count):
    """What was taken out of a value, part by part: form and bytes."""
    if not isinstance(before, str):
        return [(b"j", canonical.write(before))]
    marks = list(re.finditer(r"\[redacted:[^\]]*\]", after)) if isinstance(after, str) else []
    if len(marks) != count:
        return [(b"s", before.encode())] * count
    pattern, at = "", 0
    for m in marks:
        pattern += re.escape(after[at:m.start()]) + "(.+)"
        at = m.end()
    m = re.fullmatch(pattern + re.escape(after[at:]), before, re.S)
    return [(b"s", part.encode()) for part in m.groups()] if m else [(b"s", before.encode())] * count


CHECKS = {
    "Keys:": Example.read_keys, "Subject, broker time": Example.read_message, "Record.": Example.read_record,
    "Record hash": Example.read_hashes, "Signed checkpoint": Example.read_checkpoint, "Inclusion proof": Example.read_inclusion,
    "Vouched key record": Example.read_key_record, "Key retirement": Example.read_retirement, "Three records": Example.read_batch,
    "The root of the first 3": Example.read_consistency, "Witness:": Example.read_witness, "Wrapped session key": Example.read_session_key,
}


def check(page):
    """Checks the page's example. Gives the number of checks and what failed."""
    example = Example(page)
    titles = [title for title, _ in blocks(page)]
    for start in CHECKS:
        if not any(title.startswith(start) for title in titles):
            example.failures.append("the page has no block %r" % start)
    return example.done, example.failures
