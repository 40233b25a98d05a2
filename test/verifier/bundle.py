"""Bundles: docs/evidence-format.md, section 5. The file is read line by line, several
times, and never held."""

import base64
import datetime
import hashlib

import archive
import canonical
import expired
import merkle
import statement
from record import Records, check_time, need, whole
from signed import Bad, Checkpoint, Key, standard, vouched

BODIES = ("decisions.jsonl", "findings.jsonl", "calls.jsonl", "approvals.jsonl")
NAMES = ("manifest.json", "README.txt", "checkpoint.txt", "keys.json", "records.jsonl", "cover.jsonl") + BODIES + ("records.parquet", "in_force.json", "report.html", "controls.json")
LAYOUTS = [NAMES + gone + signed for gone in ((), (expired.NAME,)) for signed in ((), (statement.NAME,))]
HELD = ("manifest.json", "checkpoint.txt", "keys.json", expired.NAME, statement.NAME)
FORMAT = "countersign/bundle/v1"
LAST = 253402300799  # the last second of the year 9999
MALFORMED = (canonical.NotCanonical, KeyError, TypeError, ValueError, AttributeError, UnicodeError)


def line_of(lines):
    """The next line, None after the last. One that is not ended is no bytes: it equals no body."""
    try:
        return next(lines, None)
    except Bad as e:
        return str(e)


class Bundle:
    """A bundle under verification. failures lists what does not hold, by member."""

    def __init__(self, raw, key_text, witnesses=()):
        self.failures, self.raw, self.checkpoint = [], raw, None
        self.key, self.witnesses, self.cosigned = Key(key_text, 1), [Key(w, 4) for w in witnesses], []
        self.members, self.behind = self.attempt("archive", lambda: archive.unpack(raw)) or ([], 0)
        if self.failures or not self.attempt("archive", self.check_archive):
            return
        self.read()

    def read(self):
        self.by_name = {m.name: m for m in self.members}
        self.files = {n: self.by_name[n].all() for n in HELD if n in self.by_name}
        self.manifest = self.attempt("manifest.json", lambda: canonical.check(self.files["manifest.json"])) or {}
        self.checkpoint = self.attempt("checkpoint.txt", self.check_checkpoint)
        self.keys = self.attempt("keys.json", self.check_keys) or {}
        self.ends, self.signer, self.reasons = [], None, None  # ends are the first record and the last
        headed = self.attempt("manifest.json", self.check_head)
        if headed and self.checkpoint:
            if expired.NAME in self.files:
                self.reasons = self.attempt(expired.NAME, lambda: expired.Reasons(self.files[expired.NAME], self.checkpoint, self.key, self.manifest["subject_prefix"]))
            self.check_records()
            if self.reasons:
                self.attempt("records.jsonl", self.reasons.check_whole)
            self.attempt("manifest.json", self.check_manifest)
        for entry in self.manifest.get("members", []):
            self.attempt(str(entry.get("name")), lambda: self.check_digest(entry))
        if statement.NAME in self.files:
            self.signer = self.attempt(statement.NAME, lambda: statement.check(self))

    def check_head(self):
        m = self.manifest
        need(all(isinstance(m[k], str) for k in ("session", "subject_prefix")), "a member has the wrong type")
        self.ranged = not m["session"]
        if self.ranged:
            check_time(m["from"]), check_time(m["to"])

    def attempt(self, member, check):
        """Runs a check; what it finds is a failure of a member."""
        try:
            result = check()
            return True if result is None else result
        except Bad as e:
            self.failures.append((member, str(e)))
        except MALFORMED as e:
            self.failures.append((member, "malformed: %s" % (e or type(e).__name__)))
        return None

    def check_archive(self):
        names = tuple(m.name for m in self.members)
        if names not in LAYOUTS:
            raise Bad("the members are %s, not %s" % (", ".join(names) or "none", ", or ".join(", ".join(n) for n in LAYOUTS)))
        at = archive.differs(self.raw, self.members, self.behind)
        if at:
            self.failures.append((at[0], "the ZIP differs from its one form at byte %d" % at[1]))

    def check_checkpoint(self):
        checkpoint = Checkpoint(self.files["checkpoint.txt"], self.key)
        for w in self.witnesses:
            seconds = Checkpoint(self.files["checkpoint.txt"], w).seconds  # raises unless it signed
            at = datetime.datetime.fromtimestamp(min(seconds, LAST), datetime.timezone.utc)
            self.cosigned.append("%s at %s" % (w.name, at.strftime("%Y-%m-%dT%H:%M:%SZ")))
        return checkpoint

    def check_keys(self):
        records = canonical.check(self.files["keys.json"])
        ids = [k["kid"] for k in records]
        if ids != sorted(ids):
            raise Bad("not sorted by kid")
        if any(set(k) != {"alg", "created_at", "kid", "public_key", "use", "vouch"} for k in records):
            raise Bad("a key record has other members")
        return dict(vouched(k, self.key) for k in records)

    def take(self, line):
        """Reads a line of the records: a record, or what is left of one."""
        if line.startswith(expired.PREFIX):
            r = self.records.gone(expired.Expired(line, self.records.prefix, self.reasons))
        else:
            r = self.records.add(line)
        if self.reasons:
            self.reasons.count(r)
        return r

    def check_records(self):
        self.records = Records(self.keys, self.manifest["subject_prefix"], self.manifest["from"] if self.ranged else None)
        self.tree, self.cover = merkle.Tree(), self.by_name["cover.jsonl"].lines()
        bodies = {name[:-7]: self.by_name[name].lines() for name in BODIES}  # by kind
        n = 0
        try:
            for n, line in enumerate(self.by_name["records.jsonl"].lines(), 1):
                r = self.take(line)
                self.belongs(r)
                self.ends = [self.ends[0] if self.ends else r, r]
                if r.kind in bodies and line_of(bodies[r.kind]) != r.body_bytes():
                    self.failures.append((r.kind + "s.jsonl", "not the bodies of the %ss in the records" % r.kind))
                    del bodies[r.kind]
                if not self.failed("cover.jsonl"):
                    self.attempt("cover.jsonl", lambda: self.leaf(r))
        except (Bad,) + MALFORMED as e:
            self.failures.append(("records.jsonl", "line %d: %s" % (n + (0 if isinstance(e, Bad) and self.records.records < n else 1), e)))
            return
        if not self.ends:
            self.failures.append(("records.jsonl", "it is empty"))
        for kind, lines in bodies.items():
            if line_of(lines) is not None:
                self.failures.append((kind + "s.jsonl", "it has more than the bodies of the %ss in the records" % kind))
        if not self.failed("cover.jsonl"):
            self.attempt("cover.jsonl", self.finish)

    def failed(self, member):
        return any(m == member for m, _ in self.failures)

    def belongs(self, r):
        m, first = self.manifest, self.ends[0] if self.ends else r
        need((r.tenant, r.shard) == (first.tenant, self.checkpoint.shard), "sequence %d is of another tenant or shard" % r.seq)
        if self.ranged:
            need(m["from"] <= r.all["broker_time"] < m["to"], "sequence %d is not of the range" % r.seq)
        else:
            need(r.session == first.session and r.session, "sequence %d is of another session, or of none" % r.seq)

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

    def selection(self):
        """The session, or the times of a range."""
        m = self.manifest
        return {"from": m["from"], "to": m["to"]} if self.ranged else {"session": self.ends[0].session}

    def check_manifest(self):
        if not self.ends:
            return
        m = dict(self.manifest)
        listed = m.pop("members")
        want = {"format": FORMAT, "shard": self.checkpoint.shard, "tenant": self.ends[0].tenant, "session": "",
                "subject_prefix": self.records.prefix, "records": self.records.records, "seqs": [r.seq for r in self.ends],
                "checkpoint_size": self.checkpoint.size, "checkpoint_root": base64.b64encode(self.checkpoint.root).decode()}
        want.update(self.selection())
        if self.records.expired:
            want["expired"] = self.records.expired
        need(set(m) == set(want), "the manifest has other members than its format's")
        for name in sorted(want):
            need(canonical.write(m.get(name)) == canonical.write(want.get(name)), "%s is not what follows from the records" % name)  # to Python, true is 1
        self.check_listed(listed)

    def check_listed(self, listed):
        if [e["name"] for e in listed] != [m.name for m in self.members[1:] if m.name != statement.NAME] or any(set(e) != {"name", "size", "sha256"} for e in listed):
            raise Bad("it does not list the other members")
        if (expired.NAME in self.files) != (self.records.expired > 0):
            raise Bad("%s is %s, and %d texts expired" % (expired.NAME, "there" if expired.NAME in self.files else "missing", self.records.expired))

    def check_digest(self, entry):
        m = self.by_name.get(entry["name"])
        if m is None or (m.size, m.digest(hashlib.sha256())) != (whole(entry["size"], "size"), entry["sha256"]):
            raise Bad("not the file that the manifest lists")

    def predicate(self):
        """What a statement must say of the bundle."""
        return dict(self.selection(), format=FORMAT, tenant=self.ends[0].tenant, shard=self.checkpoint.shard, records=self.records.records)

    def summary(self):
        m = self.manifest
        what = "tenant %s from %s to %s" % (m["tenant"], m["from"], m["to"]) if self.ranged else "session %s of tenant %s" % (m["session"], m["tenant"])
        return "%s: %d records in %d sessions, sequences %d to %d" % (what, self.records.records, len(self.records.heads), self.ends[0].seq, self.ends[1].seq)
