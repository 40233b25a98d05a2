"""Bundles: docs/evidence-format.md, section 5."""

import base64
import datetime
import hashlib
import json

import archive
import canonical
import expired
import statement
from record import Session, included, whole
from signed import Bad, Checkpoint, Key, standard, vouched

HEAD = ("manifest.json", "README.txt", "checkpoint.txt", "keys.json")
BODIES = ("decisions.jsonl", "findings.jsonl", "calls.jsonl", "approvals.jsonl")
TAIL = ("records.parquet", "in_force.json", "report.html", "controls.json")
LAST = 253402300799  # the last second of the year 9999
KINDS = {"decisions.jsonl": "decision", "findings.jsonl": "finding", "calls.jsonl": "call", "approvals.jsonl": "approval"}


def layouts(names):
    """The members with and without those that may be missing."""
    return [names + gone + signed for gone in ((), (expired.NAME,)) for signed in ((), (statement.NAME,))]


class Bundle:
    """A bundle under verification. failures lists what does not hold, by member."""

    format = "countersign/bundle/v1"
    layouts = layouts(HEAD + ("records.jsonl", "proofs.json") + BODIES + TAIL)

    def __init__(self, raw, key_text, witnesses=()):
        self.failures, self.raw, self.session, self.checkpoint = [], raw, None, None
        self.key, self.witnesses, self.cosigned = Key(key_text, 1), [Key(w, 4) for w in witnesses], []
        self.members, self.behind = self.attempt("archive", lambda: archive.unpack(raw)) or ([], 0)
        if self.failures or not self.attempt("archive", self.check_archive):
            return
        self.read()

    def read(self):
        self.files = {m.name: m.all() for m in self.members}
        self.manifest = self.attempt("manifest.json", lambda: canonical.check(self.files["manifest.json"])) or {}
        self.checkpoint = self.attempt("checkpoint.txt", self.check_checkpoint)
        self.keys = self.attempt("keys.json", self.check_keys) or {}
        self.proofs = self.attempt("proofs.json", self.check_proofs) or []
        self.reasons = self.check_expiries()
        self.check_records()
        self.check_texts()
        self.attempt("manifest.json", self.check_manifest)
        self.check_digests()
        self.signer = None
        if statement.NAME in self.files:
            self.signer = self.attempt(statement.NAME, lambda: statement.check(self))

    def attempt(self, member, check):
        """Runs a check; what it finds is a failure of a member."""
        try:
            result = check()
            return True if result is None else result
        except Bad as e:
            self.failures.append((member, str(e)))
        except (canonical.NotCanonical, KeyError, TypeError, ValueError, AttributeError, UnicodeError) as e:
            self.failures.append((member, "malformed: %s" % (e or type(e).__name__)))
        return None

    def check_archive(self):
        names = tuple(m.name for m in self.members)
        if names not in self.layouts:
            raise Bad("the members are %s, not %s" % (", ".join(names) or "none", ", or ".join(", ".join(n) for n in self.layouts)))
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

    def check_proofs(self):
        proofs = canonical.check(self.files["proofs.json"])
        if set(proofs) != {"size", "proofs"} or any(set(p) != {"seq", "path"} for p in proofs["proofs"]):
            raise Bad("other members than it should have")
        if self.checkpoint and whole(proofs["size"], "size") != self.checkpoint.size:
            raise Bad("the proofs are for another size than the checkpoint's")
        return [(whole(p["seq"], "seq"), [standard(h) for h in p["path"]]) for p in proofs["proofs"]]

    def check_expiries(self):
        if expired.NAME not in self.files or not self.checkpoint:
            return None
        return self.attempt(expired.NAME, lambda: expired.Reasons(self.files[expired.NAME], self.checkpoint, self.key, self.manifest.get("subject_prefix", "gov")))

    def check_texts(self):
        if self.reasons:
            self.attempt("records.jsonl", self.reasons.check_whole)

    def take(self, line):
        """Reads a line of the records: a record, or what is left of one."""
        if line.startswith(expired.PREFIX):
            r = self.session.gone(expired.Expired(line, self.session.prefix, self.reasons))
        else:
            r = self.session.add(line)
        if self.reasons:
            self.reasons.count(r)
        return r

    def check_records(self):
        raw = self.files["records.jsonl"]
        lines = raw.split(b"\n")
        if lines.pop() != b"" or not lines:
            self.failures.append(("records.jsonl", "does not end with a line feed, or is empty"))
        self.session = Session(self.keys, self.manifest.get("subject_prefix", "gov"))
        self.records = []
        for i, line in enumerate(lines):
            r = self.attempt("records.jsonl", lambda: self.take(line))
            if r is None:
                self.failures[-1] = ("records.jsonl", "line %d: %s" % (i + 1, self.failures[-1][1]))
                return  # what follows hangs on it
            self.records.append(r)
            self.attempt("proofs.json", lambda: self.check_inclusion(i, r))
        if len(self.proofs) != len(self.records):
            self.failures.append(("proofs.json", "%d proofs for %d records" % (len(self.proofs), len(self.records))))

    def check_inclusion(self, i, r):
        first = self.records[0]
        if (r.shard, r.tenant, r.session) != (first.shard, first.tenant, first.session) or not r.session:
            raise Bad("sequence %d is of another session, or of none" % r.seq)
        if not self.checkpoint:
            return
        if r.shard != self.checkpoint.shard:
            raise Bad("sequence %d is of another shard than the checkpoint" % r.seq)
        if i >= len(self.proofs) or self.proofs[i][0] != r.seq:
            raise Bad("no proof for sequence %d at its place" % r.seq)
        try:
            included(r, self.checkpoint, self.proofs[i][1])
        except Bad as e:
            raise Bad("sequence %d: %s" % (r.seq, e)) from e

    def check_manifest(self):
        if not self.checkpoint or not self.records:
            return
        m, first = dict(self.manifest), self.records[0]
        listed = m.pop("members")
        want = {"format": self.format, "shard": self.checkpoint.shard, "tenant": first.tenant, "session": first.session,
                "subject_prefix": self.session.prefix, "records": len(self.records), "seqs": [r.seq for r in self.records],
                "checkpoint_size": self.checkpoint.size, "checkpoint_root": base64.b64encode(self.checkpoint.root).decode()}
        if self.session.expired:
            want["expired"] = self.session.expired
        for name in sorted(set(want) | set(m)):
            if canonical.write(m.get(name)) != canonical.write(want.get(name)):  # to Python, true is 1
                raise Bad("%s is %s, not %s" % (name, json.dumps(m.get(name)), json.dumps(want.get(name))))
        self.check_listed(listed)

    def check_listed(self, listed):
        if [e["name"] for e in listed] != [m.name for m in self.members[1:] if m.name != statement.NAME] or any(set(e) != {"name", "size", "sha256"} for e in listed):
            raise Bad("it does not list the other members")
        if (expired.NAME in self.files) != (self.session.expired > 0):
            raise Bad("%s is %s, and %d texts expired" % (expired.NAME, "there" if expired.NAME in self.files else "missing", self.session.expired))

    def check_digests(self):
        for entry in self.manifest.get("members", []):
            self.attempt(str(entry.get("name")), lambda: self.check_digest(entry))
        for name, kind in KINDS.items():
            if name not in self.files:
                continue
            want = b"".join(r.body_bytes() + b"\n" for r in self.records if r.kind == kind)
            if self.session and self.files[name] != want:
                self.failures.append((name, "not the bodies of the %ss in the records" % kind))

    def check_digest(self, entry):
        m = next((m for m in self.members if m.name == entry["name"]), None)
        if m is None or (m.size, m.digest(hashlib.sha256())) != (whole(entry["size"], "size"), entry["sha256"]):
            raise Bad("not the file that the manifest lists")

    def predicate(self):
        """What a statement must say of the bundle."""
        first = self.records[0]
        return {"format": self.format, "tenant": first.tenant, "session": first.session, "shard": self.checkpoint.shard, "records": len(self.records)}

    def summary(self):
        first = self.records[0]
        return "session %s of tenant %s: %d records, sequences %d to %d" % (first.session, first.tenant, self.session.records, first.seq, self.records[-1].seq)
