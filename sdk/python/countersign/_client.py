"""The client: admission, guarded tools and events, by HTTP through a gateway."""

from __future__ import annotations

import functools
import http.client
import inspect
import json
import logging
import os
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, TypeVar

from ._canonical import NotCanonical, canonical, dump, parse
from ._receipt import BadReceipt, Expectation, Keyring

_log = logging.getLogger("countersign")
_MAX_REPLY = 4 << 20
_DECISIONS = ("allow", "ask", "deny")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Call:
    """A tool call that is about to run."""

    tool: str
    arguments: dict[str, Any]
    session: str
    call_id: str = field(default_factory=lambda: "call-" + uuid.uuid4().hex)
    event_id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(frozen=True)
class Verdict:
    """What may be done. Only allowed lets a call run; it is never true without a valid receipt."""

    decision: str  # allow, ask, deny
    reason: str  # a policy's message, or a code; empty for an allow
    workflow: str = ""  # ask: what a reviewer must decide
    decision_id: str = ""
    nonce: str = ""  # allow: of the receipt, which counts once

    @property
    def allowed(self) -> bool:
        return self.decision == "allow"


class Refused(Exception):
    """A guarded call that did not run, not even in part."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(f"{verdict.decision}: {verdict.reason}" + (f" (workflow {verdict.workflow})" if verdict.workflow else ""))
        self.verdict = verdict


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to another address."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class _Failure(Exception):
    """A request without an answer that counts; its text is a code."""


class Client:
    """Asks and reports as one publisher of one tenant. It may be used from several threads.

    gateway: address of the gateway, https:// or http:// of this machine.
    token: a token of the role runtime. publisher: for which it was made.
    public_key: the checkpoint key, which vouches for the keys that sign receipts.
    pinned_keys: ids of the receipt keys that count; without it every key does that the checkpoint key vouches
        for, a retired one included.
    timeout: seconds for one request, and for each wait on the network within it.
    """

    def __init__(self, gateway: str, token: str, *, tenant: str, publisher: str, public_key: str, pinned_keys: Iterable[str] | None = None, timeout: float = 10.0) -> None:
        self._gateway = gateway.rstrip("/")
        local = _check_address(self._gateway)
        if not (token and tenant and publisher):
            raise ValueError("token, tenant and publisher are needed")
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise ValueError("the token has characters that no token has: is there a line end?")
        self._token, self._tenant, self._publisher, self._timeout = token, tenant, publisher, timeout
        self._keys = Keyring(public_key, pinned_keys)
        proxies = [urllib.request.ProxyHandler({})] if local else []
        self._http = urllib.request.build_opener(_NoRedirect, *proxies)

    @classmethod
    def from_ready_file(cls, path: str | os.PathLike[str], **options: Any) -> Client:
        """Return a client of the `countersign up` that wrote this ready file."""
        with open(path, encoding="utf-8") as f:
            ready = json.load(f)
        runtime = ready["roles"]["runtime"]
        return cls(ready["gateway_url"], runtime["token"], tenant=ready["tenant"], publisher=runtime["publisher"], public_key=ready["public_key"], **options)

    # Admission.

    def admit(self, call: Call, wait: float = 0.0) -> Verdict:
        """Ask whether a call may run. A refusal, and every failure, is a Verdict that is not allowed.

        wait: seconds to wait for a person, if the verdict is ask.
        """
        deadline = time.monotonic() + wait
        workflow, pause = "", 0.3
        try:
            body = dump(_event(call, "PreToolUse", self._publisher, evidence_phase="pre_commit"))
        except NotCanonical:
            return Verdict("deny", "bad_arguments")
        while True:
            verdict = self._ask(call, body, workflow)
            if verdict.decision != "ask" or not verdict.workflow:
                return verdict
            if workflow and verdict.workflow != workflow:
                return Verdict("deny", "approval_expired", workflow, verdict.decision_id)
            if not time.monotonic() + pause <= deadline:  # also if wait is no number
                return verdict
            workflow = verdict.workflow
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _ask(self, call: Call, body: bytes, workflow: str) -> Verdict:
        try:
            status, header, answer = self._post("/event", body, workflow)
            return self._read(call, status, header, answer)
        except _Failure as e:
            return Verdict("deny", str(e))
        except Exception:  # an answer that no code here foresees permits nothing
            return Verdict("deny", "bad_reply")

    def _read(self, call: Call, status: int, header: Any, answer: bytes) -> Verdict:
        try:
            reply = parse(answer)
            if status != 200:
                return Verdict("deny", str(reply.get("error") or reply.get("reason") or f"http_{status}"))
            decision, reason = reply["decision"], str(reply["reason"])
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise _Failure("bad_reply") from e
        said = header.get("Countersign-Verdict", "")
        if decision not in _DECISIONS or said != decision and (said, decision) != ("defer", "ask"):
            raise _Failure("bad_reply")
        decision_id = header.get("Countersign-Decision-Id", "")
        if decision != "allow":
            return Verdict(decision, reason, header.get("Countersign-Workflow-Id", ""), decision_id)
        want = Expectation(self._tenant, self._publisher, call.session, call.call_id, call.tool, call.arguments)
        try:
            claims = self._keys.check(header.get("Countersign-Receipt", ""), header.get("Countersign-Key", ""), want)
        except BadReceipt as e:
            return Verdict("deny", e.code, decision_id=decision_id)
        return Verdict("allow", "", decision_id=decision_id, nonce=str(claims["nonce"]))

    # Guarded tools.

    @contextmanager
    def run(self, call: Call, wait: float = 0.0) -> Iterator[Verdict]:
        """Run a block only if a call is allowed, once, and report whether it succeeded.

        Raises Refused before the block begins.
        """
        arguments = canonical(call.arguments) if _is_json(call.arguments) else b"{}"
        admitted = replace(call, arguments=json.loads(arguments))
        verdict = self.admit(call, wait)
        if verdict.allowed and (problem := _used.mark(verdict.nonce)):
            verdict = Verdict("deny", problem, decision_id=verdict.decision_id)
        if verdict.allowed and not (_is_json(call.arguments) and canonical(call.arguments) == arguments):
            verdict = Verdict("deny", "receipt_other_arguments", decision_id=verdict.decision_id)
        if not verdict.allowed:
            self._report(admitted, "ToolUseBlocked", {})
            raise Refused(verdict)
        started = datetime.now(timezone.utc)
        outcome = "failed"
        try:
            yield verdict
            outcome = "succeeded"
        finally:
            ended = datetime.now(timezone.utc)
            self._report(admitted, "PostToolUse", {
                "tool_input_executed": json.loads(arguments),
                "execution": {"outcome": outcome, "started_at": _rfc3339(started), "completed_at": _rfc3339(ended)},
            })

    def guard(self, *, session: str, tool: str = "", wait: float = 0.0) -> Callable[[Callable[..., _T]], Callable[..., _T]]:
        """Decorate a function so that every call of it is admitted first, and reported.

        Its arguments, by their names, are the tool's arguments; they must be JSON values. A coroutine
        function or a generator would run after the guard has ended: it is refused with TypeError, and so
        is *args, which has no names. Guard a plain function, or use run.
        """

        def decorate(function: Callable[..., _T]) -> Callable[..., _T]:
            if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise TypeError("guard takes plain functions: this one would run after the guard has ended")
            signature = inspect.signature(function)
            kinds = {p.kind: name for name, p in signature.parameters.items()}
            if inspect.Parameter.VAR_POSITIONAL in kinds:
                raise TypeError("guard takes functions whose arguments have names")
            rest = kinds.get(inspect.Parameter.VAR_KEYWORD)

            @functools.wraps(function)
            def guarded(*args: Any, **kwargs: Any) -> _T:
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                named = dict(bound.arguments)
                named.update(named.pop(rest, {}) if rest else {})
                try:
                    admitted = json.loads(dump(named))
                except NotCanonical as e:
                    raise Refused(Verdict("deny", "bad_arguments")) from e
                with self.run(Call(tool or function.__name__, admitted, session), wait):
                    # What runs is what was admitted.
                    for name in bound.arguments:
                        bound.arguments[name] = {k: admitted[k] for k in named if k not in signature.parameters} if name == rest else admitted[name]
                    return function(*bound.args, **bound.kwargs)

            return guarded

        return decorate

    # Events.

    def publish(self, protocol: str, *events: dict[str, Any]) -> None:
        """Publish events; return once all are stored durably. Raises OSError if they are not."""
        try:
            body = dump(list(events))
        except NotCanonical as e:
            raise ValueError(f"the events are not JSON that all readers read alike: {e}") from e
        try:
            status, _, answer = self._post("/v1/events/" + urllib.parse.quote(protocol, safe=""), body)
        except _Failure as e:
            raise OSError(f"the events are not certainly stored: {e}") from e
        if status != 200:
            raise OSError(f"the events are not stored: status {status}: {answer[:300].decode('utf-8', 'replace')}")

    def _report(self, call: Call, event_type: str, metadata: dict[str, Any]) -> None:
        """Report what became of a call. A failure is logged: the correlator then finds a call without an end."""
        try:
            self.publish("agenthook", _event(call, event_type, self._publisher, metadata))
        except (OSError, ValueError) as e:
            _log.error("call %s: %s is not on record: %s", call.call_id, event_type, e)

    # AANA and AUMP: their own replies, whose receipts are not checked here. They are no permission.

    def check_tool_call(self, event: dict[str, Any]) -> dict[str, Any]:
        """Ask by an AANA tool pre-check event and return AANA's reply; raises OSError for an outage."""
        return self._native("/pre-tool-check", event)

    def evaluate_action(self, mandate: str, action: dict[str, Any]) -> dict[str, Any]:
        """Evaluate an action under an AUMP mandate and return AUMP's reply; raises OSError for a refused request."""
        return self._native(f"/aump/mandates/{urllib.parse.quote(mandate, safe='')}:evaluateAction", action)

    def _native(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            status, _, answer = self._post(path, dump(body))
            reply = parse(answer)
        except NotCanonical as e:
            raise OSError("bad_reply") from e
        except _Failure as e:
            raise OSError(str(e)) from e
        if status != 200 or not isinstance(reply, dict):
            raise OSError(f"status {status}: {answer[:300].decode('utf-8', 'replace')}")
        return reply

    def _post(self, path: str, body: bytes, workflow: str = "") -> tuple[int, Any, bytes]:
        request = urllib.request.Request(self._gateway + path, body, {"Authorization": "Bearer " + self._token, "Content-Type": "application/json"})
        if workflow:
            request.add_header("Countersign-Workflow-Id", workflow)
        end = time.monotonic() + self._timeout
        try:
            with self._open(request) as answer:
                return answer.status, answer.headers, _all(answer, end)
        except TimeoutError as e:
            raise _Failure("timeout") from e
        except (OSError, ValueError) as e:
            late = isinstance(getattr(e, "reason", None), TimeoutError)
            raise _Failure("timeout" if late else "not_reachable") from e
        except http.client.HTTPException as e:  # half an answer
            raise _Failure("bad_reply") from e

    def _open(self, request: urllib.request.Request) -> Any:
        """Send a request; an error of HTTP is an answer, too."""
        try:
            return self._http.open(request, timeout=self._timeout)
        except urllib.error.HTTPError as e:
            return e


class _Used:
    """The receipts that this process has used, until none of them can hold any more."""

    LIMIT, LIFETIME = 65_536, 25 * 3600  # no receipt lives longer than a day

    def __init__(self) -> None:
        self._until: dict[str, float] = {}  # in the order in which they expire
        self._lock = threading.Lock()

    def mark(self, nonce: str) -> str:
        """Mark a receipt as used; return why it may not be, or nothing."""
        now = time.monotonic()
        with self._lock:
            while self._until and next(iter(self._until.values())) <= now:
                del self._until[next(iter(self._until))]
            if nonce in self._until:
                return "receipt_used"
            if len(self._until) >= self.LIMIT:
                return "receipt_use_unknown"
            self._until[nonce] = now + self.LIFETIME
        return ""


_used = _Used()


def _all(answer: Any, end: float) -> bytes:
    """Read a whole answer, if it comes before the time end and is not too long."""
    parts: list[bytes] = []
    left = _MAX_REPLY
    while part := answer.read1(min(left + 1, 1 << 16)):
        left -= len(part)
        if left < 0:
            raise _Failure("bad_reply")
        if time.monotonic() > end:
            raise _Failure("timeout")
        parts.append(part)
    body = b"".join(parts)
    length = answer.headers.get("Content-Length")
    if length is not None and length != str(len(body)):
        raise _Failure("bad_reply")
    return body


def _check_address(text: str) -> bool:
    """Refuse to send a token in clear over a network; report whether the address is this machine."""
    url = urllib.parse.urlsplit(text)
    local = url.hostname in ("localhost", "127.0.0.1", "::1")
    if not url.hostname or url.scheme != "https" and not (url.scheme == "http" and local):
        raise ValueError("the gateway's address must begin with https://, or be http:// of this machine")
    return local


def _is_json(value: Any) -> bool:
    try:
        canonical(value)
    except NotCanonical:
        return False
    return True


def _event(call: Call, event_type: str, publisher: str, metadata: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "event_id": call.event_id if event_type == "PreToolUse" else str(uuid.uuid4()),
        "event_type": event_type,
        "timestamp": _rfc3339(datetime.now(timezone.utc)),
        "source": publisher,
        "session_id": call.session,
        "tool_name": call.tool,
        "tool_input": call.arguments,
        "metadata": {"tool_call_id": call.call_id, **(metadata or {})},
        **more,
    }


def _rfc3339(t: datetime) -> str:
    return t.isoformat(timespec="microseconds").replace("+00:00", "Z")
