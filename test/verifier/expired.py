"""Records whose text expired: docs/evidence-format.md, section 5."""

import hashlib
import re

import canonical
from record import Record, Scope, check_time, included, need, whole
from signed import open_note, standard

NAME = "expiries.json"
PREFIX = b'{"expired":'
TEXTS = ("body_digest", "broker_time", "kind", "record_hash", "session", "shard", "subject", "tenant")
MEMBERS = {"expiry_id", "shard", "state", "part", "parts", "tenant", "policy", "sessions", "records", "at", "writer", "vouch"}


class Reasons:
    """What the expiry records of a bundle say: which sequences have no text."""

    def __init__(self, raw, checkpoint, key, prefix):
        self.used = {}
        self.spans = {}  # (tenant, session) -> the spans of it that expired
        self.texts = {}  # (expiry, tenant, session) -> [records without their text, records with it]
        entries = canonical.check(raw)
        need(all(set(e) == {"path", "record"} for e in entries), "an entry has other members")
        for e in entries:
            r = Record(e["record"].encode(), prefix)
            included(r, checkpoint, [standard(h) for h in e["path"]])
            need((r.kind, r.scope.state, r.shard) == ("control", "expiry", checkpoint.shard), "sequence %d is no expiry record" % r.seq)
            self.take(r, key)

    def take(self, r, key):
        body = dict(r.body)
        need(set(body) == MEMBERS, "the expiry record of sequence %d has other members" % r.seq)
        vouch = body.pop("vouch")
        want = "countersign/expiry/v1\n%s\n" % hashlib.sha256(canonical.write(body)).hexdigest()
        need(open_note(vouch.encode(), key) == want, "the vouch of sequence %d is for another record" % r.seq)
        need((body["state"], body["shard"]) == ("begun", r.shard), "sequence %d does not say what expires" % r.seq)
        for s in body["sessions"]:
            index = whole(s["index"], "index")
            texts = self.texts.setdefault((body["expiry_id"], body["tenant"], s["session"]), [0, 0])
            for first, last in s["sequences"]:
                first, last = whole(first, "a sequence"), whole(last, "a sequence")
                need(0 < first <= last < r.seq, "sequence %d is about what comes after it" % r.seq)
                self.spans.setdefault((body["tenant"], s["session"]), []).append((first, last, index, body["policy"], texts))
                index += last - first + 1

    def of(self, seq, tenant, session):
        """The place in its session of a record without a text."""
        for first, last, index, policy, _ in self.spans.get((tenant, session), ()):
            if first <= seq <= last:
                self.used[policy] = self.used.get(policy, 0) + 1
                return index + seq - first
        need(False, "sequence %d has no text, and no expiry record names it" % seq)

    def count(self, r):
        """Counts a record, with its text or without, for each expiry that names it."""
        for first, last, *_, texts in self.spans.get((r.tenant, r.session), ()):
            if first <= r.seq <= last:
                texts[r.kind != Expired.kind] += 1

    def check_whole(self):
        """An expiry takes all texts of a session that it names."""
        for (_, _, session), (gone, kept) in self.texts.items():
            need(not gone or not kept, "session %s: %d records are here without their text and %d with it, and one expiry names them all" % (session, gone, kept))


class Expired:
    """What is left of a record."""

    kind = "expired"

    def __init__(self, raw, prefix, reasons):
        line = canonical.check(raw)
        need(set(line) == {"expired"} and set(line["expired"]) == set(TEXTS) | {"seq"}, "a line without a record has other members")
        r = self.all = line["expired"]
        need(all(isinstance(r[k], str) for k in TEXTS), "a member has the wrong type")
        need(re.fullmatch("[0-9a-f]{64}", r["record_hash"]), "the hash is malformed")
        check_time(r["broker_time"])
        self.raw, self.hash, self.seq = raw, bytes.fromhex(r["record_hash"]), whole(r["seq"], "seq")
        self.shard, self.tenant, self.session = r["shard"], r["tenant"], r["session"]
        self.scope = Scope(r["subject"], prefix)
        need(r["kind"] != "control" and r["kind"] in (self.scope.kind, "unparseable"), "kind %s on a subject of %s" % (r["kind"], self.scope.kind))
        need(self.tenant == self.scope.tenant and (self.scope.kind == "approval" or self.session == self.scope.session), "tenant or session are not those of the subject")
        need(reasons is not None, "sequence %d has no text, and nothing says why" % self.seq)
        self.index = reasons.of(self.seq, self.tenant, self.session)
