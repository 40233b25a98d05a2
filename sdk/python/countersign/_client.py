"""The client: admission, guarded tools and events, by HTTP through a gateway."""

from __future__ import annotations

import functools
import hashlib
import http.client
import inspect
import json
import logging
import os
import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, NoReturn, ParamSpec, TypeVar

from ._canonical import NotCanonical, canonical, dump, parse
from ._ready import read_ready_file
from ._receipt import BadReceipt, Expectation, Keyring, use_until

_log = logging.getLogger("countersign")
_MAX_REPLY = 4 << 20
_MAX_REASON = 2_000  # characters of a policy's message
_DECISIONS = ("allow", "ask", "defer", "deny")
_SETTLED = ("approved", "denied", "expired", "cancelled", "consumed")  # statuses of a workflow that is not pending
# Codes of requests without a decision that may have one later.
_OUTAGES = (
    "not_reachable", "timeout", "bad_reply", "audit_unavailable", "overloaded", "quota_exceeded", "rate_limited", "stopping", "unavailable",
    "http_502", "http_503", "http_504", "no_token",
)
_LATER = (*_OUTAGES, "in_doubt", "not_stored")  # codes of reports that may be stored later; an event that is stored twice counts once
_NOT_STORED = ("not_stored", "overloaded", "stopping", "unavailable")  # codes of a status from 500 on that say so for certain
_LONGEST_WAIT = 30  # seconds that the gateway lets one request wait for a workflow
_REPORT_TIME = 15.0  # seconds for which the report of a call that ran, and a producer's event, is sent again
_MAX_BODY = 1 << 20  # bytes that a gateway takes at most
_MAX_REQUEST = _MAX_BODY - (4 << 10)  # of an admission: the report of the call adds how it ended
_HEADER_TEXT = r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?"  # what a header carries unchanged
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Call:
    """A tool call that is about to run."""

    tool: str
    arguments: dict[str, Any] | None = field(hash=False)  # None for an AAEP invocation, which has none
    session: str
    call_id: str = field(default_factory=lambda: "call-" + uuid.uuid4().hex)
    event_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    agent: str = ""  # whose call it is, for policies and mandates of one agent
    traceparent: str = ""  # the W3C trace


@dataclass(frozen=True)
class Verdict:
    """What may be done. Only allowed lets a call run; it is never true without a valid receipt."""

    decision: str  # allow, ask, defer, deny
    reason: str  # a policy's message, or a code; empty for an allow
    workflow: str = ""  # ask: what a reviewer must decide; defer: the same, but no approval lifts it; allow: the approval that it used
    decision_id: str = ""
    nonce: str = ""  # allow: of the receipt, which counts once
    until: float = 0.0  # allow: when no receipt of this allowance holds any more, in seconds since 1970

    @property
    def allowed(self) -> bool:
        return self.decision == "allow"

    def __bool__(self) -> NoReturn:
        raise TypeError("a Verdict is no truth value: ask whether it is allowed")


@dataclass(frozen=True)
class Checked:
    """A verdict that was asked for in another protocol, and that protocol's own reply, empty if none came that counts."""

    verdict: Verdict
    reply: dict[str, Any]

    @property
    def allowed(self) -> bool:
        return self.verdict.allowed

    def __bool__(self) -> NoReturn:
        raise TypeError("a Checked is no truth value: ask whether it is allowed")


class Refused(Exception):
    """A guarded call that did not run, not even in part."""

    def __init__(self, verdict: Verdict) -> None:
        text = f"{verdict.decision}: {verdict.reason}" + (f" (workflow {verdict.workflow})" if verdict.workflow else "")
        if verdict.decision == "ask" and verdict.workflow:
            text += ". Do not try another way; repeat the identical call once it is approved."
        super().__init__(text)
        self.verdict = verdict

    def __reduce__(self) -> tuple[Any, ...]:
        return Refused, (self.verdict,)


class NotStored(OSError):
    """Events that are not, or not certainly, on record.

    code: why, stable. certain: whether it is certain that those that failed are not stored. In doubt, send the same event
    again, with its event_id: it counts once. failed: the positions of those that failed, if only some did, as the gateway
    says. event: what a producer made and sent, None of other events.
    """

    def __init__(self, code: str, certain: bool, failed: list[int] | None = None, event: dict[str, Any] | None = None) -> None:
        super().__init__(f"the events are not {'' if certain else 'certainly '}stored: {code}")
        self.code, self.certain, self.failed, self.event = code, certain, failed, event

    def __reduce__(self) -> tuple[Any, ...]:
        return NotStored, (self.code, self.certain, self.failed, self.event)


class _Request(urllib.request.Request):
    watchdog: _Watchdog


class _HTTP(urllib.request.HTTPHandler):
    """Connects under the watchdog of a request."""

    def http_open(self, request: Any) -> Any:
        return self.do_open(_connection(http.client.HTTPConnection, request.watchdog), request)


class _HTTPS(urllib.request.HTTPSHandler):
    """Connects under the watchdog of a request."""

    def __init__(self) -> None:
        super().__init__()
        self._tls = ssl.create_default_context()

    def https_open(self, request: Any) -> Any:
        return self.do_open(_connection(http.client.HTTPSConnection, request.watchdog), request, context=self._tls)


def _connection(kind: Any, watchdog: _Watchdog) -> Any:
    def connect(*args: Any, **options: Any) -> Any:
        made = kind(*args, **options)
        made._create_connection = watchdog.connect
        return made

    return connect


class _Watchdog:
    """Ends a connection after some seconds, whatever the other side sends. A look-up of a name is not ended."""

    def __init__(self, seconds: float) -> None:
        self.late = False
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._end_at = time.monotonic() + seconds
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> _Watchdog:
        self._timer.start()
        return self

    def __exit__(self, *args: Any) -> None:
        self._timer.cancel()
        with self._lock:
            if self._socket:
                self._socket.close()

    def connect(self, address: tuple[str, int], *args: Any, **options: Any) -> socket.socket:
        """Try the addresses of a host one after the other, each with its share of the watchdog's time."""
        problem: OSError = OSError("the host has no address")
        addresses = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
        for tried, (*_, where) in enumerate(addresses):
            left = self._end_at - time.monotonic()
            if left <= 0:
                raise TimeoutError("no address answered in time")
            try:
                connected = socket.create_connection(where[:2], left / (len(addresses) - tried))
                connected.settimeout(left)  # of its reads
                return self._keep(connected)
            except OSError as e:
                problem = e
        raise problem

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def _keep(self, connected: socket.socket) -> socket.socket:
        with self._lock:
            if self.late:
                connected.close()
                raise TimeoutError("the connection came too late")
            self._socket = connected.dup()  # TLS takes the first one over
        return connected

    def _end(self) -> None:
        with self._lock:
            self.late = True
            if self._socket:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to another address."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class _Failure(Exception):
    """A request without an answer that counts; its text is a code. sent is false if there was no connection."""

    def __init__(self, code: str, sent: bool = True) -> None:
        super().__init__(code)
        self.sent = sent


class Client:
    """Asks and reports as one publisher of one tenant. It may be used from several threads.

    gateway: address of the gateway, https:// or http:// of this machine.
    token: a token of the role runtime, or a function that gives the current one for each request. publisher: for which it was made.
    public_key: the checkpoint key, which vouches for the keys that sign receipts.
    pinned_keys: ids of the receipt keys that count; without it every key does that the checkpoint key vouches
        for, also one that was retired, unless records or verify_online tell.
    records: key records and retirements that are known beforehand, JSON each (the members record and
        retirement of the lines of `countersign keys list --json`).
    verify_online: also ask the gateway whether a receipt holds. It knows the keys that were retired; a receipt counts
        only if it says yes, and the check here, too. A gateway that cannot say is a refusal, `unverifiable`.
    timeout: seconds for one request.
    """

    def __init__(
        self, gateway: str, token: str | Callable[[], str], *, tenant: str, publisher: str, public_key: str, pinned_keys: Iterable[str] | None = None,
        records: Iterable[str] = (), verify_online: bool = False, timeout: float = 10.0,
    ) -> None:
        self._gateway = gateway.rstrip("/")
        local = _check_address(self._gateway)
        if not (token and tenant and publisher):
            raise ValueError("token, tenant and publisher are needed")
        if isinstance(token, str):
            _check_token(token)
        self._token, self._tenant, self._publisher, self._timeout = token, tenant, publisher, timeout
        self._keys, self._verify_online = Keyring(public_key, pinned_keys, records), verify_online
        self._waiting = _Waiting()
        proxies = [urllib.request.ProxyHandler({})] if local else []
        self._http = urllib.request.build_opener(_NoRedirect, _HTTP, _HTTPS, *proxies)

    @classmethod
    def from_ready_file(cls, path: str | os.PathLike[str], **options: Any) -> Client:
        """Return a client of the `countersign up` that wrote this ready file, which must run.

        The file must be readable by its owner alone. Raises ValueError otherwise.
        """
        ready = read_ready_file(path)
        runtime = ready["roles"]["runtime"]
        return cls(ready["gateway_url"], runtime["token"], tenant=ready["tenant"], publisher=runtime["publisher"], public_key=ready["public_key"], **options)

    # Admission.

    def admit(self, call: Call, wait: float = 0.0, workflow: str = "") -> Verdict:
        """Ask whether a call may run. A refusal, and every failure, is a Verdict that is not allowed.

        wait: seconds to wait for a person, if the verdict is ask. workflow: what an earlier ask for the identical call gave.
        """
        if workflow and not re.fullmatch(_HEADER_TEXT, workflow):
            return Verdict("deny", "bad_arguments")
        try:
            body = dump(_event(call, "PreToolUse", self._publisher, tool_input=call.arguments, evidence_phase="pre_commit"))
        except NotCanonical:
            return Verdict("deny", "bad_arguments")
        return self._wait(lambda named: self._ask(call, body, named), wait, workflow)

    def _wait(self, ask: Callable[[str], Verdict], wait: float, earlier: str = "") -> Verdict:
        """Ask, and as long as the verdict is ask and there is time, ask again.

        earlier: the workflow for which the identical call was refused. It may be over by now: then another one is opened.
        """
        deadline = time.monotonic() + wait
        workflow, pause = "", 0.3
        waiting = Verdict("deny", "")  # the latest ask
        while True:
            verdict = ask(workflow or earlier)
            if workflow and not verdict.decision_id and verdict.reason in _OUTAGES:
                verdict = waiting  # the call waits on, whether the gateway restarts or not
            if verdict.decision != "ask" or not verdict.workflow:
                return verdict
            if workflow and verdict.workflow != workflow:
                return Verdict("deny", "approval_expired", workflow, verdict.decision_id)
            if not time.monotonic() + pause <= deadline:  # also if wait is no number
                return verdict
            begun, known = time.monotonic(), workflow != ""
            waiting, workflow = verdict, verdict.workflow
            decided = self._decided(workflow, int(min(deadline - begun, _LONGEST_WAIT)))
            if decided == "consumed":  # by an allow whose answer was lost; one more ask would open a workflow that nobody waits for
                return Verdict("deny", "approval_used", workflow)
            if known or not decided:  # a gateway that answers at once is not asked without a pause
                time.sleep(max(0.0, begun + pause - time.monotonic()))
            pause = min(2 * pause, 2.0)

    def _decided(self, workflow: str, seconds: int) -> str:
        """Wait until a workflow is not pending any more and return its status; nothing if it is when the time is over, or if that cannot be learnt."""
        if seconds < 1 or not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", workflow):
            return ""
        try:
            status, _, answer = self._send(f"/v1/approvals/{workflow}?wait={seconds}", None, {}, seconds + self._timeout)
            found = parse(answer)["status"]
            return found if status == 200 and found in _SETTLED else ""
        except Exception:  # the next ask tells
            return ""

    def _ask(self, call: Call, body: bytes, workflow: str) -> Verdict:
        headers = {"Countersign-Workflow-Id": workflow} if workflow else {}
        return self._admit("/event", call, body, headers, _hook_decision).verdict

    def admit_native(self, protocol: str, request: dict[str, Any], call: Call, workflow: str = "") -> Checked:
        """Ask in another protocol's own words: aaep, aana, aump, tool or handoff.

        call is what the request is about, as the executor knows it. A refusal, and every failure, is a verdict that
        is not allowed. workflow: what an earlier ask gave.
        """
        headers = {"Countersign-Session": call.session, "Countersign-Tool-Call-Id": call.call_id}
        optional = {"Countersign-Agent": call.agent, "traceparent": call.traceparent, "Countersign-Workflow-Id": workflow}
        headers.update({name: text for name, text in optional.items() if text})
        if not all(isinstance(text, str) and re.fullmatch(_HEADER_TEXT, text) for text in headers.values()):
            return Checked(Verdict("deny", "bad_arguments"), {})
        try:
            body = dump(request)
        except NotCanonical:
            return Checked(Verdict("deny", "bad_arguments"), {})
        path = "/v1/admit/" + urllib.parse.quote(protocol, safe="")
        return self._admit(path, call, body, headers, lambda reply: _native_decision(protocol, reply))

    def _admit(self, path: str, call: Call, body: bytes, headers: dict[str, str], decide: Callable[[dict[str, Any]], str | None]) -> Checked:
        if len(body) > _MAX_REQUEST:
            return Checked(Verdict("deny", "request_too_large"), {})
        try:
            status, header, answer = self._post(path, body, headers)
            return self._read(call, status, header, answer, decide)
        except _Failure as e:
            return Checked(Verdict("deny", str(e)), {})
        except Exception:  # an answer that no code here foresees permits nothing
            return Checked(Verdict("deny", "bad_reply"), {})

    def _read(self, call: Call, status: int, header: Any, answer: bytes, decide: Callable[[dict[str, Any]], str | None]) -> Checked:
        """Read the verdict of an answer. decide gives the word of the body, which must not contradict the header."""
        try:
            reply = parse(answer)
            if status != 200:
                return Checked(Verdict("deny", _error_code(status, reply)), {})
            said = decide(reply)
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise _Failure("bad_reply") from e
        decision = header.get("Countersign-Verdict", "")
        if decision not in _DECISIONS or said != ("ask" if decision == "defer" else decision):
            raise _Failure("bad_reply")
        verdict = self._verdict(call, decision, reply, header)
        counts = verdict.allowed or decision != "allow"  # an allow without a valid receipt says nothing
        return Checked(verdict, reply if counts else {})

    def _verdict(self, call: Call, decision: str, reply: dict[str, Any], header: Any) -> Verdict:
        decision_id, workflow = header.get("Countersign-Decision-Id", ""), header.get("Countersign-Workflow-Id", "")
        if decision != "allow":
            return Verdict(decision, _reason(reply)[:_MAX_REASON], workflow, decision_id)
        receipt, key = header.get("Countersign-Receipt", ""), header.get("Countersign-Key", "")
        want = Expectation(self._tenant, self._publisher, call.session, call.call_id, call.tool, call.arguments)
        try:
            claims = self._keys.check(receipt, key, want)
            if self._verify_online:
                if problem := self._refuted(receipt, key, call):
                    return Verdict("deny", problem, decision_id=decision_id)
                self._keys.check(receipt, key, want)  # the answer may have taken long
        except BadReceipt as e:
            return Verdict("deny", e.code, decision_id=decision_id)
        return Verdict("allow", "", workflow, decision_id, nonce=str(claims["nonce"]), until=use_until(claims))

    def _refuted(self, receipt: str, key: str, call: Call) -> str:
        """Ask the gateway, too, whether a receipt holds; return why it does not, or nothing."""
        about = {"session": call.session, "tool_call_id": call.call_id, "tool": call.tool, "arguments": call.arguments}
        try:
            status, _, answer = self._post("/v1/receipts:verify", dump({"receipt": receipt, "key": key, "call": about}))
            found = parse(answer)
            if status == 200 and found["valid"] is True:
                return ""
            if status == 200 and found["valid"] is False:
                return _code_in(found) or "unverifiable"
        except (_Failure, ArithmeticError, KeyError, TypeError, ValueError):
            pass
        return "unverifiable"

    # Guarded tools.

    @contextmanager
    def run(self, call: Call, wait: float = 0.0) -> Iterator[Verdict]:
        """Run a block only if a call is allowed, once, and report whether it succeeded.

        Raises Refused before the block begins. After an ask, the identical call (session, agent, tool and arguments) to this
        client uses the approval, once, under whatever call id.
        """
        with self._run(call, lambda admitted, earlier: self.admit(admitted, wait, earlier)) as verdict:
            yield verdict

    @contextmanager
    def _run(self, call: Call, admit: Callable[[Call, str], Verdict]) -> Iterator[Verdict]:
        try:
            arguments = canonical(call.arguments)
            admitted = replace(call, arguments=json.loads(arguments))
            identity = hashlib.sha256(canonical([call.session, call.agent, call.tool, admitted.arguments])).digest()
        except NotCanonical as e:
            raise Refused(Verdict("deny", "bad_arguments")) from e
        earlier = self._waiting.take(identity)
        verdict = admit(admitted, earlier)
        if verdict.decision == "ask" or not verdict.decision_id:  # without a decision an earlier one stands
            self._waiting.keep(identity, verdict.workflow or earlier)
        if verdict.allowed and (problem := _used.mark(verdict.nonce, verdict.until)):
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
                **_approval(verdict),
            }, _REPORT_TIME)

    def guard(
        self, *, session: str | Callable[[], str], tool: str = "", wait: float = 0.0, agent: str | Callable[[], str] = "",
    ) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
        """Decorate a function so that every call of it is admitted first, and reported.

        Its arguments, by their names, are the tool's arguments; they must be JSON values. A coroutine
        function or a generator would run after the guard has ended: it is refused with TypeError, and so
        is a method, whose self is no JSON value, *args, which has no names, and a keyword of **kwargs with the name of a
        parameter. Guard a plain function or a bound method, or use run.

        session, agent: texts, or functions that give them for each call, such as the get of a ContextVar. A session is one
        conversation: approvals, limits and the evidence of a call are of its session.
        """

        def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
            _check_plain(function)
            signature = inspect.signature(function)
            of_class = "." in getattr(function, "__qualname__", "").rpartition("<locals>.")[2]
            if of_class and next(iter(signature.parameters), "") in ("self", "cls"):
                raise TypeError("guard takes functions, not methods: self is no JSON value; guard the bound method, or use run")
            kinds = {p.kind: name for name, p in signature.parameters.items()}
            if inspect.Parameter.VAR_POSITIONAL in kinds:
                raise TypeError("guard takes functions whose arguments have names")
            rest = kinds.get(inspect.Parameter.VAR_KEYWORD)

            @functools.wraps(function)
            def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _T:
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                named = dict(bound.arguments)
                more = named.pop(rest, {}) if rest else {}
                if twice := more.keys() & signature.parameters.keys():
                    raise TypeError(f"guard cannot tell two arguments apart: {', '.join(sorted(twice))}")
                named.update(more)
                try:
                    admitted = json.loads(dump(named))
                except NotCanonical as e:
                    raise Refused(Verdict("deny", "bad_arguments")) from e
                with self.run(Call(tool or function.__name__, admitted, _current(session), agent=_current(agent)), wait):
                    # What runs is what was admitted.
                    for name in bound.arguments:
                        bound.arguments[name] = {k: admitted[k] for k in more} if name == rest else admitted[name]
                    return _ended(function(*bound.args, **bound.kwargs))

            return guarded

        return decorate

    # Events.

    def publish(self, protocol: str, *events: dict[str, Any], session: str = "") -> None:
        """Publish events; return once all are stored durably. Raises NotStored, an OSError, if they are not.

        session: of events that have no field for it, which are AUMP's; printable ASCII.
        """
        if session and not re.fullmatch(_HEADER_TEXT, session):
            raise ValueError("the session must be printable ASCII without spaces around it")
        try:
            body = dump(list(events))
        except NotCanonical as e:
            raise ValueError(f"the events are not JSON that all readers read alike: {e}") from e
        if len(body) > _MAX_BODY:
            raise NotStored("request_too_large", True)
        try:
            status, _, answer = self._post("/v1/events/" + urllib.parse.quote(protocol, safe=""), body, _session_header(session))
        except _Failure as e:
            raise NotStored(str(e), not e.sent) from e
        if status != 200:
            raise _not_stored(status, answer)

    def _report(self, call: Call, event_type: str, metadata: dict[str, Any], seconds: float = 0.0) -> None:
        """Report what became of a call; for so many seconds try again. A failure is logged: the correlator then finds a
        call without an end."""
        try:
            self._publish_for(seconds, "agenthook", _event(call, event_type, self._publisher, metadata))
        except Exception as e:  # the call's own outcome matters more
            _log.error("call %s: %s is not on record: %s", call.call_id, event_type, e)

    def _publish_for(self, seconds: float, protocol: str, event: dict[str, Any]) -> None:
        """Publish an event; for so many seconds send it again if it may be stored then, as after a restart of the gateway."""
        end, pause, certain = time.monotonic() + seconds, 0.3, True
        while True:
            try:
                return self.publish(protocol, event)
            except NotStored as e:
                certain = certain and e.certain  # an earlier attempt may have stored it
                if e.code not in _LATER or time.monotonic() + pause > end:
                    raise NotStored(e.code, certain, e.failed, event) from e
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    # AANA and AUMP, by their own names.

    def check_tool_call(self, event: dict[str, Any], *, session: str, call_id: str = "") -> Checked:
        """Ask by an AANA tool pre-check event."""
        return self.admit_native("aana", event, _aana_call(event, session, call_id))

    def gate_action(self, event: dict[str, Any], action: Callable[..., _T], *, session: str, call_id: str = "", wait: float = 0.0) -> _T:
        """Ask by an AANA event, and only if it is accepted call action(**proposed_arguments), once, and report it.

        Raises Refused otherwise.
        """
        _check_plain(action)
        call = _aana_call(event, session, call_id)
        try:
            sent = parse(dump(event))  # what is admitted, whatever becomes of the event
        except NotCanonical as e:
            raise Refused(Verdict("deny", "bad_arguments")) from e

        def admit(admitted: Call, earlier: str) -> Verdict:
            return self._wait(lambda workflow: self.admit_native("aana", sent, admitted, workflow).verdict, wait, earlier)

        with self._run(call, admit):
            return _ended(action(**sent["proposed_arguments"]))

    def evaluate_action(self, mandate_ref: dict[str, Any], action: dict[str, Any], *, session: str, call_id: str = "", context: dict[str, Any] | None = None) -> Checked:
        """Evaluate a proposed action under an AUMP mandate: mandate_ref has its id, hash and version."""
        request: dict[str, Any] = {
            "aump": {"version": "0.1.0", "type": "action_evaluation_request"},
            "mandate_ref": mandate_ref,
            "proposed_action": action,
        }
        if context is not None:
            request["context"] = context
        tool = action.get("type") if isinstance(action, dict) else None
        return self.admit_native("aump", request, _call_of(tool, action, session, call_id))

    def _post(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, Any, bytes]:
        return self._send(path, body, {**(headers or {}), "Content-Type": "application/json"}, self._timeout)

    def _send(self, path: str, body: bytes | None, headers: dict[str, str], seconds: float) -> tuple[int, Any, bytes]:
        """Send a request, a GET without a body, and wait so long for the whole answer."""
        request = _Request(self._gateway + path, body, {**headers, "Authorization": "Bearer " + self._current_token()})
        end = time.monotonic() + seconds
        with _Watchdog(seconds) as request.watchdog:
            try:
                found = self._exchange(request, end, seconds)
            except _Failure as e:
                raise _Failure("timeout") if request.watchdog.late else e
        if request.watchdog.late:  # what was read is perhaps only a part
            raise _Failure("timeout")
        return found

    def _current_token(self) -> str:
        if isinstance(self._token, str):
            return self._token
        try:
            return _check_token(self._token())
        except Exception as e:
            raise _Failure("no_token", sent=False) from e

    def _exchange(self, request: _Request, end: float, seconds: float) -> tuple[int, Any, bytes]:
        try:
            with self._open(request, seconds) as answer:
                return answer.status, answer.headers, _all(answer, end)
        except TimeoutError as e:
            raise _Failure("timeout") from e
        except (OSError, ValueError) as e:
            late = isinstance(getattr(e, "reason", None), TimeoutError)
            raise _Failure("timeout" if late else "not_reachable", request.watchdog.connected) from e
        except http.client.HTTPException as e:  # half an answer
            raise _Failure("bad_reply") from e

    def _open(self, request: urllib.request.Request, seconds: float) -> Any:
        """Send a request; an error of HTTP is an answer, too."""
        try:
            return self._http.open(request, timeout=seconds)
        except urllib.error.HTTPError as e:
            return e


def _current(text: str | Callable[[], str]) -> str:
    return text() if callable(text) else text


def _check_plain(function: Any) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError("only plain functions can be guarded: this one would run after the guard has ended")


def _ended(result: _T) -> _T:
    """Return what a function returned, if it is not what runs only later."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError("only plain functions can be guarded: what this one returned would run after the guard has ended")
    return result


def _session_header(session: str) -> dict[str, str]:
    return {"Countersign-Session": session} if session else {}


def _aana_call(event: dict[str, Any], session: str, call_id: str) -> Call:
    fields = event if isinstance(event, dict) else {}
    return _call_of(fields.get("tool_name"), fields.get("proposed_arguments"), session, call_id)


def _call_of(tool: Any, arguments: Any, session: str, call_id: str) -> Call:
    call = Call(tool if isinstance(tool, str) else "", arguments if isinstance(arguments, dict) else {}, session)
    return replace(call, call_id=call_id) if call_id else call


# What the words of the protocols' replies mean.
_GATE = {"allow": "allow", "require_approval": "ask", "deny": "deny"}
_WORDS = {
    "aana": {"accept": "allow", "ask": "ask", "defer": "ask", "refuse": "deny"},
    "aump": {"allowed": "allow", "requires_escalation": "ask", "denied": "deny"},
    "tool": _GATE,
    "handoff": _GATE,
    "aaep": {"allow": "allow", "ask": "ask", "defer": "ask", "deny": "deny"},
}
# Where the replies of protocols have the word, if not in decision.
_MEMBERS = {"aana": "recommended_action", "aaep": "verdict"}


def _hook_decision(reply: dict[str, Any]) -> str | None:
    """Return the verdict that an AgentHook reply states, or None."""
    return reply["decision"] if isinstance(reply["reason"], str) else None


def _native_decision(protocol: str, reply: dict[str, Any]) -> str | None:
    """Return the verdict that a protocol's own reply states, or None."""
    word = reply[_MEMBERS.get(protocol, "decision")]
    if protocol == "aana" and reply["execution_policy"]["execution_allowed"] is not (word == "accept"):
        return None
    return _WORDS[protocol].get(word)


def _reason(reply: dict[str, Any]) -> str:
    """Return the message of a reply, or else the first of its codes. What is no text is none."""
    lists = (reply.get(name) for name in ("hard_blockers", "reason_codes", "reasons"))
    blocker, code, recorded = (found[0] if isinstance(found, list) and found else None for found in lists)
    recorded = recorded.get("code") if isinstance(recorded, dict) else None  # AAEP; AANA has texts there
    return next((text for text in (reply.get("reason"), blocker, code, recorded) if isinstance(text, str) and text), "")


class _Waiting:
    """The workflows for which calls were refused, by what the calls are. An approval is for one call: each is taken once."""

    LIMIT = 1000

    def __init__(self) -> None:
        self._workflows: dict[bytes, str] = {}
        self._lock = threading.Lock()

    def take(self, identity: bytes) -> str:
        with self._lock:
            return self._workflows.pop(identity, "")

    def keep(self, identity: bytes, workflow: str) -> None:
        if not workflow:
            return
        with self._lock:
            self._workflows[identity] = workflow
            if len(self._workflows) > self.LIMIT:
                del self._workflows[next(iter(self._workflows))]  # the oldest is the likeliest to have expired


class _Used:
    """The receipts that this process has used, until none of them can hold any more."""

    LIMIT = 65_536

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._forgotten = 0.0  # the latest end of a receipt that was dropped
        self._lock = threading.Lock()

    def mark(self, nonce: str, until: float) -> str:
        """Mark a receipt as used; return why it may not be, or nothing."""
        with self._lock:
            if len(self._until) >= self.LIMIT:
                self._drop(time.time())
            if nonce in self._until or until <= self._forgotten:  # the clock went back: it may have been dropped
                return "receipt_used"
            if len(self._until) >= self.LIMIT:
                return "receipt_use_unknown"
            self._until[nonce] = until
        return ""

    def _drop(self, now: float) -> None:
        over = [nonce for nonce, until in self._until.items() if until < now]
        self._forgotten = max([self._forgotten, *map(self._until.__getitem__, over)])
        for nonce in over:
            del self._until[nonce]


_used = _Used()


def _code_in(reply: dict[str, Any]) -> str:
    """Return the code by which an answer says what is wrong, if it has one. Any other text is left out: it may
    repeat the request, token included."""
    detail = reply.get("detail")
    for found in (reply.get("error"), reply.get("reason"), detail.get("error") if isinstance(detail, dict) else None):
        if isinstance(found, str) and re.fullmatch(r"[a-z0-9_]{1,64}", found):
            return found
    return ""


def _error_code(status: int, reply: dict[str, Any]) -> str:
    return _code_in(reply) or f"http_{status}"


def _not_stored(status: int, answer: bytes) -> NotStored:
    code, failed = f"http_{status}", None
    with suppress(AttributeError, ValueError):
        reply = parse(answer)
        code, failed = _error_code(status, reply), reply.get("failed")
    known = isinstance(failed, list) and all(type(n) is int for n in failed)
    return NotStored(code, 400 <= status < 500 or code in _NOT_STORED, failed if known else None)


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


def _check_token(text: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]+", text):
        raise ValueError("the token has characters that no token has: is there a line end?")
    return text


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
        "metadata": {"tool_call_id": call.call_id, **({"traceparent": call.traceparent} if call.traceparent else {}), **(metadata or {})},
        **({"agent_id": call.agent} if call.agent else {}),
        **more,
    }


def _approval(verdict: Verdict) -> dict[str, Any]:
    """Return the metadata by which a report names the approval that a call used."""
    if not verdict.workflow:
        return {}
    return {"approval": {"required": True, "status": "approved", "workflow_id": verdict.workflow, "decision_ref": verdict.decision_id}}


def _rfc3339(t: datetime) -> str:
    return t.isoformat(timespec="microseconds").replace("+00:00", "Z")
