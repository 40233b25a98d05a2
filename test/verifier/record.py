"""Evidence records: docs/evidence-format.md, sections 1, 2 and 4."""

import base64
import datetime
import hashlib
import re

import canonical
import merkle
from signed import Bad, check_signature, read_signature

PREFIX = b"countersign/evidence/v1\x00"
TEXTS = ("shard", "tenant", "session", "kind", "subject", "broker_time", "body_digest")
MEMBERS = set(TEXTS) | {"v", "seq", "headers", "body", "redactions", "session_index", "session_prev"}
OPTIONAL = {"reason", "redaction_policy"}
CLASSES = {
    "events": ("tenant", "publisher", "protocol", "session"),
    "decisions": ("tenant", "state", "session"), "calls": ("tenant", "state", "session"), "findings": ("tenant", "state", "session"),
    "approvals": ("tenant", "state", "workflow"), "control": ("stream", "state"),
}
HEX = r"[0-9a-f]{64}"
KEYED = r"(?:hmac-sha256:|session-hmac-sha256:[0-9a-f]{16}:)"  # under the tenant's key or a session's


def record_hash(raw):
    return hashlib.sha256(PREFIX + raw).digest()


def need(condition, text):
    if not condition:
        raise Bad(text)


class Record:
    """A record that was read and checked as far as it can be by itself."""

    def __init__(self, raw, prefix="gov"):
        try:
            r = canonical.check(raw)
        except canonical.NotCanonical as e:
            raise Bad("the record is not canonical: %s" % e) from e
        need(isinstance(r, dict) and MEMBERS <= set(r) <= MEMBERS | OPTIONAL, "the record has other members")
        need(all(isinstance(r[k], str) for k in TEXTS), "a member has the wrong type")
        need(all(isinstance(r[k], str) and r[k] for k in OPTIONAL & set(r)), "an optional member is empty or no text")
        need(whole(r["v"], "v") == 1, "version %s" % r["v"])
        self.raw, self.hash, self.all = raw, record_hash(raw), r
        self.seq = whole(r["seq"], "seq")
        need(1 <= self.seq <= 2**53, "seq is out of range")
        self.shard, self.tenant, self.session, self.kind = r["shard"], r["tenant"], r["session"], r["kind"]
        self.headers, self.body, self.reason = r["headers"], r["body"], r.get("reason", "")
        self.index = None if r["session_index"] is None else whole(r["session_index"], "session_index")
        self.prev = r["session_prev"]
        need(re.fullmatch(r"[\x21-\x2a\x2c-\x7e]{1,200}", self.shard), "the shard's name is malformed")
        check_time(r["broker_time"])
        self.check_headers()
        self.scope = Scope(r["subject"], prefix)
        self.check_subject()
        self.check_body()
        self.check_redactions()

    def check_headers(self):
        need(isinstance(self.headers, dict) and all(isinstance(v, list) and all(isinstance(s, str) for s in v) for v in self.headers.values()),
             "headers are not lists of texts")

    def header(self, name):
        values = self.headers.get(name, [])
        return values[0] if len(values) == 1 else ""

    def check_subject(self):
        need(self.kind in (self.scope.kind, "unparseable"), "kind %s on a subject of %s" % (self.kind, self.scope.kind))
        session = self.scope.session
        if self.kind == "approval":
            session = self.session if self.redacted("/body/session") else in_token(self.member("session"))
        need((self.tenant, self.session) == (self.scope.tenant, session), "tenant or session are not those of the subject")
        need(self.kind != "finding" or self.reason or self.member("severity") == self.scope.state, "the severity is not that of the subject")

    def check_body(self):
        need(not self.reason or self.body is None, "a reason for having no body, and a body")
        need(self.reason or self.kind != "unparseable", "unparseable without a reason")
        form = KEYED if self.all["redactions"] or self.reason else "sha256:"
        need(re.fullmatch(form + HEX, self.all["body_digest"]), "body_digest is not of the form " + form)

    def check_redactions(self):
        need(isinstance(self.all["redactions"], list), "redactions are no list")
        for i, red in enumerate(self.all["redactions"]):
            ok = isinstance(red, dict) and {"commitment", "detector", "path"} <= set(red) <= {"action", "commitment", "detector", "path", "policy"}
            need(ok and all(isinstance(v, str) for v in red.values()), "redaction %d is malformed" % i)
            need(all(red.get(k, "x") for k in ("action", "policy")), "redaction %d has an empty member" % i)
            need(re.fullmatch("hmac-sha256:" + HEX, red["commitment"]), "redaction %d has no commitment" % i)
            need(self.marked(red), "redaction %d left no mark" % i)

    def marked(self, red):
        detector, path, action = red["detector"], red["path"], red.get("action", "mask")
        if path == "/body" and detector == "withheld":
            return bool(self.reason)
        if path == "/headers" and detector in ("too_many", "withheld"):
            return self.headers == {}
        forms = {"mask": r"(:\*[^\]]*)?", "hash": ":h-[0-9a-f]{32}", "tokenise": ":[ts]-[0-9a-f]{32}", "truncate": "", "drop": ""}
        if action not in forms:
            return False
        there, value, last = find(self.all, path)
        mark = re.compile(r"\[redacted:" + re.escape(detector) + forms[action] + r"\]")
        if action == "drop":
            return not there or value in (None, "") or bool(mark.search(last))
        return there and bool(isinstance(value, str) and mark.search(value) or mark.search(last))

    def redacted(self, path):
        return any(red["path"] == path for red in self.all["redactions"])

    def member(self, name):
        value = self.body.get(name, "") if isinstance(self.body, dict) else ""
        return value if isinstance(value, str) else ""

    def body_bytes(self):
        """The exact bytes of the body: it is canonical, like all around it."""
        return canonical.write(self.body)


def whole(value, name):
    need(isinstance(value, canonical.Number) and value == int(value) and value >= 0, name + " is no whole number")
    return int(value)


def check_time(text):
    m = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d{9}Z", text, re.ASCII)
    need(m, "a time is malformed")
    try:
        datetime.datetime.strptime(m[1], "%Y-%m-%dT%H:%M:%S")
    except ValueError as e:
        raise Bad("a time is none") from e


def find(value, pointer):
    """Follows a JSON pointer: whether something is there, what, and the last token."""
    last = ""
    if not pointer.startswith("/"):
        return False, None, last
    for token in pointer[1:].split("/"):
        last = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and last in value:
            value = value[last]
        elif isinstance(value, list) and re.fullmatch("[0-9]+", last) and int(last) < len(value):
            value = value[int(last)]
        else:
            return False, None, pointer.rsplit("/", 1)[1].replace("~1", "/").replace("~0", "~")
    return True, value, last


def escape(value):
    """The token of a value, in bytes."""
    if re.fullmatch(rb"[A-Za-z0-9_-]+", value):
        token = value.decode()
    else:
        token = "~" + base64.urlsafe_b64encode(value).decode().rstrip("=")
    return token if len(token) <= 64 else "~h" + hashlib.sha256(value).hexdigest()


def in_token(name):
    """A name from a body in the form that subjects give."""
    token = escape(name.encode())
    return token if re.fullmatch("~h" + HEX, token) else name


def unescape(token):
    """The value of a token, None if it is not in its one spelling."""
    if token == "~":
        return ""
    if re.fullmatch("~h" + HEX, token):
        return token
    value = token.encode()
    if token.startswith("~"):
        try:
            value = base64.urlsafe_b64decode(token[1:] + "=" * (-len(token[1:]) % 4))
        except ValueError:
            return None
    if escape(value) != token:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return token


class Scope:
    """What a subject says."""

    def __init__(self, subject, prefix):
        self.kind, self.tenant, self.session, self.state, self.workflow = "unparseable", "", "", "", ""
        tokens = subject.split(".")
        n = prefix.count(".") + 1
        if tokens[:n] != prefix.split(".") or len(tokens) <= n or tokens[n] not in CLASSES:
            return
        fields, tokens, name = CLASSES[tokens[n]], tokens[n + 1:], tokens[n]
        values = [unescape(t) for t in tokens]
        types = values[len(fields):]
        if None in values or len(values) < len(fields) or bool(types) != (name == "events") or any("." in t for t in types):
            return
        for field, value in zip(fields, values):
            setattr(self, field, value)
        self.kind = name.rstrip("s")
        if name == "events" and types == ["request"]:
            self.kind = "request"


GRACE = datetime.timedelta(seconds=10)


def instant(text):
    """A time to the microsecond, and its nanoseconds as they are written."""
    return datetime.datetime.strptime(text[:26] + "Z", "%Y-%m-%dT%H:%M:%S.%fZ")


class Records:
    """Records by sequence, of a session from its first on, or from a time on: chains,
    decisions, approvals. The sessions of a range may have begun before."""

    def __init__(self, keys, prefix, begin=None):
        self.keys, self.prefix = keys, prefix  # keys that are vouched for, by id
        self.heads, self.seq, self.expired = {}, 0, 0
        self.ranged, self.judged = begin is not None, begin is None
        self.from_ = begin and instant(begin) + GRACE  # from then on decisions have their requests here
        self.requests = {}  # decision id -> [digest, decided]
        self.records = self.decisions = self.approvals = self.unchecked = 0

    def count(self, r):
        self.judged = self.judged or instant(r.all["broker_time"]) >= self.from_
        need(r.seq > self.seq, "sequence %d comes after %d" % (r.seq, self.seq))
        self.seq, self.records = r.seq, self.records + 1

    def add(self, raw):
        r = Record(raw, self.prefix)
        self.count(r)
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
        return r

    def gone(self, r):
        """Takes a record whose text expired."""
        self.count(r)
        before = self.heads.get(r.session)
        if before or not self.ranged:
            need(r.index == (before[0] if before else 0) + 1, "sequence %d does not follow the record of its session before it" % r.seq)
        self.heads[r.session] = (r.index, r.hash)
        self.expired += 1
        return r

    def chain(self, r):
        before = self.heads.get(r.session)
        if before:
            need(r.index == before[0] + 1 and r.prev == before[1].hex(), "sequence %d does not follow the record of its session before it" % r.seq)
        else:
            need((r.index == 1) == (r.prev is None) and r.index >= 1 and (r.index == 1 or self.ranged), "sequence %d: the first of a session, or not" % r.seq)
        self.heads[r.session] = (r.index, r.hash)

    def asked(self, request):
        """Whether the request of a decision is there; it must be, but for the first seconds of a range."""
        need(request or not self.judged, "no request before the decision names it")
        return bool(request)

    def signed(self, r):
        """Checks the signature, where the record still has the bytes that it covers."""
        value = r.header("Countersign-Signature")
        need(value, "the %s has no signature" % r.kind)
        if any(red["path"].startswith("/body/") for red in r.all["redactions"]):
            read_signature(value, r.body_bytes())
            self.unchecked += 1  # it covers what was taken out of names: only the log can prove it
        else:
            check_signature(value, r.body_bytes(), self.keys)

    def decision(self, r):
        need(isinstance(r.body, dict), "the decision is no record")
        need((in_token(r.member("tenant")), r.member("verdict")) == (r.tenant, r.scope.state), "the decision is not its subject's")
        need(in_token(r.member("session")) == r.session or r.redacted("/body/session"), "the decision's session is not its subject's")
        self.signed(r)
        self.decisions += 1
        request = self.requests.get(r.member("decision_id"))
        if not self.asked(request):
            return
        need(not request[1], "the decision is there a second time")
        digests = (request[0], r.member("request_digest"))
        keyed = all(re.fullmatch(KEYED + HEX, d) for d in digests)
        under = {d.rpartition(":")[0] for d in digests}  # of two keys, nobody can compare
        need(not keyed or len(under) > 1 or digests[0] == digests[1], "the request is another than the one that was decided")
        request[1] = True

    def approval(self, r):
        names = (in_token(r.member("tenant")), r.member("status"), in_token(r.member("workflow_id")))
        need(names == (r.tenant, r.scope.state, r.scope.workflow), "the approval is not its subject's")
        self.signed(r)
        self.approvals += 1


def included(r, checkpoint, path):
    """Checks that a record is in the signed tree."""
    need(r.seq <= checkpoint.size, "the record is newer than the checkpoint")
    top = merkle.climb(r.seq - 1, checkpoint.size, merkle.leaf(r.hash), path)
    need(top == checkpoint.root, "the proof does not lead to the signed root")
