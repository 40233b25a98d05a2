"""Bundles of a range: docs/evidence-format.md, section 5. The file is read line
by line, several times, and never held."""

import base64
import datetime

import canonical
import expired
import merkle
import statement
from bundle import BODIES, HEAD, KINDS, TAIL, Bundle, layouts
from record import Record, Session, check_time, need, whole
from signed import Bad, standard

WHOLE = ("manifest.json", "checkpoint.txt", "keys.json", expired.NAME, statement.NAME)
GRACE = datetime.timedelta(seconds=10)


def instant(text):
    """A time to the microsecond, and its nanoseconds as they are written."""
    return datetime.datetime.strptime(text[:26] + "Z", "%Y-%m-%dT%H:%M:%S.%fZ")


class Sessions(Session):
    """The records of many sessions, which may have begun before."""

    def __init__(self, keys, prefix, begin):
        super().__init__(keys, prefix)
        self.heads, self.judged, self.from_ = {}, False, instant(begin) + GRACE

    def asked(self, request):
        if self.judged:
            return super().asked(request)
        return bool(request)

    def add(self, raw):
        r = Record(raw, self.prefix)
        self.judged = self.judged or instant(r.all["broker_time"]) >= self.from_
        need(r.seq > self.seq, "sequence %d comes after %d" % (r.seq, self.seq))
        need(bool(r.session) == (r.index is not None) and (r.session or r.prev is None), "session_index without a session, or none with one")
        if r.session:
            self.chain(r)
        if r.scope.kind == "request" and r.header("Countersign-Decision-Id"):
            self.requests[r.header("Countersign-Decision-Id")] = [r.all["body_digest"], False]
        need(r.kind == r.scope.kind or r.scope.kind not in ("decision", "approval"), "a %s that could not be parsed" % r.scope.kind)
        if r.kind == "decision":
            self.decision(r)
        if r.kind == "approval":
            self.approval(r)
        self.seq, self.records = r.seq, self.records + 1
        return r

    def gone(self, r):
        self.judged = self.judged or instant(r.all["broker_time"]) >= self.from_
        need(r.seq > self.seq, "sequence %d comes after %d" % (r.seq, self.seq))
        before = self.heads.get(r.session)
        need(not before or r.index == before[0] + 1, "sequence %d does not follow the record of its session before it" % r.seq)
        self.heads[r.session] = (r.index, r.hash)
        self.seq, self.records, self.expired = r.seq, self.records + 1, self.expired + 1
        return r

    def chain(self, r):
        before = self.heads.get(r.session)
        if before:
            need(r.index == before[0] + 1 and r.prev == before[1].hex(), "sequence %d does not follow the record of its session before it" % r.seq)
        else:
            need((r.index == 1) == (r.prev is None) and r.index >= 1, "sequence %d: the first of a session, or not" % r.seq)
        self.heads[r.session] = (r.index, r.hash)


class Range(Bundle):
    format = "countersign/range/v1"
    layouts = layouts(HEAD + ("records.jsonl", "cover.jsonl") + BODIES + TAIL)

    def read(self):
        self.by_name = {m.name: m for m in self.members}
        self.files = {n: self.by_name[n].all() for n in WHOLE if n in self.by_name}
        self.manifest = self.attempt("manifest.json", lambda: canonical.check(self.files["manifest.json"])) or {}
        self.checkpoint = self.attempt("checkpoint.txt", self.check_checkpoint)
        self.keys = self.attempt("keys.json", self.check_keys) or {}
        self.records, self.signer = [], None  # the first record and the last
        self.attempt("manifest.json", self.check_head)
        self.reasons = self.check_expiries()
        if not self.failures or self.checkpoint and self.manifest:
            self.check_records()
            self.check_texts()
        self.attempt("manifest.json", self.check_manifest)
        for entry in self.manifest.get("members", []):
            self.attempt(str(entry.get("name")), lambda: self.check_digest(entry))
        if statement.NAME in self.files:
            self.signer = self.attempt(statement.NAME, lambda: statement.check(self))

    def check_head(self):
        check_time(self.manifest["from"]), check_time(self.manifest["to"])

    def check_records(self):
        self.session = Sessions(self.keys, self.manifest.get("subject_prefix", "gov"), self.manifest["from"])
        self.tree, self.cover, self.at = merkle.Tree(), self.by_name["cover.jsonl"].lines(), 0
        bodies = {kind: self.by_name[name].lines() for name, kind in KINDS.items()}
        n = 0
        try:
            for n, line in enumerate(self.by_name["records.jsonl"].lines(), 1):
                r = self.take(line)
                self.belongs(r)
                self.records = [self.records[0] if self.records else r, r]
                if r.kind in bodies and next(bodies[r.kind], None) != r.body_bytes():
                    self.failures.append((r.kind + "s.jsonl", "not the bodies of the %ss in the records" % r.kind))
                    del bodies[r.kind]
                if not self.failed("cover.jsonl"):
                    self.attempt("cover.jsonl", lambda: self.leaf(r))
        except (Bad, canonical.NotCanonical, KeyError, TypeError, ValueError, AttributeError) as e:
            self.failures.append(("records.jsonl", "line %d: %s" % (n + (0 if isinstance(e, Bad) and self.session.records < n else 1), e)))
            return
        if not self.records:
            self.failures.append(("records.jsonl", "it is empty"))
        for kind, lines in bodies.items():
            if next(lines, None) is not None:
                self.failures.append((kind + "s.jsonl", "it has more than the bodies of the %ss in the records" % kind))
        if not self.failed("cover.jsonl"):
            self.attempt("cover.jsonl", self.finish)

    def failed(self, member):
        return any(m == member for m, _ in self.failures)

    def belongs(self, r):
        m = self.manifest
        need((r.tenant, r.shard) == (m["tenant"], self.checkpoint.shard), "sequence %d is of another tenant or shard" % r.seq)
        need(m["from"] <= r.all["broker_time"] < m["to"], "sequence %d is not of the range" % r.seq)

    def fill(self, size):
        """Appends subtrees until the tree has size leaves."""
        while self.tree.size < size:
            line = next(self.cover, None)
            need(line is not None, "it ends before the tree is whole")
            one = canonical.check(line)
            need(isinstance(one, dict) and set(one) == {"hash", "level"}, "a line is no subtree")
            need(self.tree.append(whole(one["level"], "level"), standard(one["hash"])), "a subtree stands where none can")
        need(self.tree.size == size, "a subtree reaches over a record")

    def leaf(self, r):
        self.fill(r.seq - 1)
        self.tree.append(0, merkle.leaf(r.hash))

    def finish(self):
        self.fill(self.checkpoint.size)
        need(next(self.cover, None) is None, "lines are left over")
        need(self.tree.root() == self.checkpoint.root, "records and cover do not give the signed root")

    def check_manifest(self):
        if not self.checkpoint or not self.records:
            return
        m = dict(self.manifest)
        listed = m.pop("members")
        want = {"format": self.format, "shard": self.checkpoint.shard, "tenant": self.records[0].tenant, "session": "", "from": m["from"], "to": m["to"],
                "subject_prefix": self.session.prefix, "records": self.session.records, "seqs": [self.records[0].seq, self.records[-1].seq],
                "checkpoint_size": self.checkpoint.size, "checkpoint_root": base64.b64encode(self.checkpoint.root).decode()}
        if self.session.expired:
            want["expired"] = self.session.expired
        for name in sorted(set(want) | set(m)):
            need(canonical.write(m.get(name)) == canonical.write(want.get(name)), "%s is not what follows from the records" % name)
        self.check_listed(listed)

    def predicate(self):
        m = self.manifest
        return {"format": self.format, "tenant": m["tenant"], "from": m["from"], "to": m["to"], "shard": self.checkpoint.shard, "records": self.session.records}

    def summary(self):
        m = self.manifest
        return "tenant %s from %s to %s: %d records in %d sessions, sequences %d to %d" % (
            m["tenant"], m["from"], m["to"], self.session.records, len(self.session.heads), self.records[0].seq, self.records[-1].seq)
