"""Whatever the gateway does, nothing is allowed without a valid receipt."""

import asyncio
import contextlib
import contextvars
import dataclasses
import http.server
import json
import logging
import os
import pathlib
import pickle
import socket
import subprocess
import tempfile
import threading
import unittest
import unittest.mock

import countersign
from countersign import _client, _ready


class Gateway:
    """A gateway that gives one answer, after some first ones: triples like it."""

    def __init__(self, status, headers, body, stall=0, first=()):
        gateway = self
        answers = [*first, (status, headers, body)]
        self.closed = threading.Event()
        self.tokens, self.events, self.headers = [], [], []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                gateway.tokens.append(self.headers.get("Authorization"))
                gateway.headers.append(self.headers)
                gateway.events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                status, headers, body = answers.pop(0) if len(answers) > 1 else answers[0]
                if status == 0:
                    return
                if stall:
                    self.send_response(status)
                    self.send_header("Content-Length", "10")
                    self.end_headers()
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        for _ in range(stall):
                            self.wfile.write(b" ")
                            self.wfile.flush()
                            gateway.closed.wait(0.3)
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()


class Dripping:
    """A server that sends a byte of a header at a time."""

    DROPS = 100

    def __init__(self, start):
        self.drops = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self.serve, args=(start,), daemon=True)
        self.thread.start()

    def serve(self, start):
        connection, _ = self.listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(start)
            while self.drops < self.DROPS and not self.closed.wait(0.1):
                connection.sendall(b"x")
                self.drops += 1

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.closed.set()
        self.thread.join()
        self.listener.close()


def client(url, **options):
    return countersign.Client(url, "token", tenant="acme", publisher="runtime", public_key=public_key(), **options)


def public_key():
    return json.loads(VECTORS.read_text())["public_key"]


VECTORS = pathlib.Path(__file__).parents[2] / "vectors/receipts.json"


ALLOW = {"Countersign-Verdict": "allow"}


def body(decision, reason=""):
    return json.dumps({"event_id": "x", "decision": decision, "reason": reason}).encode()


class Failures(unittest.TestCase):
    def setUp(self):
        logging.disable(logging.CRITICAL)  # what cannot be reported is logged
        self.addCleanup(logging.disable, logging.NOTSET)
        once = unittest.mock.patch.object(_client, "_REPORT_TIME", 0.0)
        once.start()
        self.addCleanup(once.stop)

    def refused(self, gate, reason):
        ran = []

        @gate.guard(session="s", tool="t")
        def tool(x):
            ran.append(x)

        with self.assertRaises(countersign.Refused) as caught:
            tool(1)
        self.assertEqual(ran, [])
        self.assertEqual(caught.exception.verdict.reason, reason)
        self.assertFalse(gate.admit(countersign.Call("t", {}, "s")).allowed)

    def test_answers(self):
        for status, headers, answer, reason in [
            (500, {}, b"", "bad_reply"),
            (503, {}, b'{"error":"unavailable"}', "unavailable"),
            (200, ALLOW, b"fine", "bad_reply"),
            (200, ALLOW, b"[]", "bad_reply"),
            (200, {}, body("allow"), "bad_reply"),
            (200, ALLOW, body("deny"), "bad_reply"),
            (200, ALLOW, body("perhaps"), "bad_reply"),
            (200, ALLOW, body("allow"), "receipt_missing"),
            (200, {**ALLOW, "Countersign-Receipt": "a.b.c"}, body("allow"), "receipt_malformed"),
            (200, {"Countersign-Verdict": "deny"}, body("deny", "too risky"), "too risky"),
            (200, {"Countersign-Verdict": "ask"}, body("ask", "later"), "later"),
            (200, ALLOW, b'{"decision":"allow","decision":"allow","reason":""}', "bad_reply"),
            (200, ALLOW, b" " * (4 << 20) + body("allow"), "bad_reply"),
            (0, {}, b"", "not_reachable"),
        ]:
            with self.subTest(reason=reason, status=status), Gateway(status, headers, answer) as g:
                self.refused(client(g.url), reason)

    def test_slow(self):
        """Half a body, then nothing; and a body in drops: each is a refusal, of any status."""
        for status in (200, 500):
            with self.subTest(status), Gateway(status, {}, b"", stall=1) as g:
                self.assertEqual(client(g.url).admit(countersign.Call("t", {}, "s")).reason, "bad_reply")
            with self.subTest(status), Gateway(status, {}, b"", stall=9) as g:
                self.assertEqual(client(g.url, timeout=0.5).admit(countersign.Call("t", {}, "s")).reason, "timeout")

    def test_header_in_drops(self):
        """A server that sends its header in drops, each in time, holds a client no longer than timeout."""
        for start in (b"", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\nX-"):
            with self.subTest(start), Dripping(start) as g:
                self.assertEqual(client(g.url, timeout=0.5).admit(countersign.Call("t", {}, "s")).reason, "timeout")
                self.assertLess(g.drops, Dripping.DROPS)

    def test_native(self):
        """AANA and AUMP: whatever the gateway says, nothing is allowed without a valid receipt."""
        accepted = {"recommended_action": "accept", "execution_policy": {"execution_allowed": True}}
        nothing = {"recommended_action": "accept", "execution_policy": {"execution_allowed": False}}
        for status, headers, reply, reason in [
            (200, {}, accepted, "bad_reply"),
            (200, {"Countersign-Verdict": "deny"}, accepted, "bad_reply"),
            (200, ALLOW, nothing, "bad_reply"),
            (200, ALLOW, {"recommended_action": "accept"}, "bad_reply"),
            (200, ALLOW, {"recommended_action": "perhaps"}, "bad_reply"),
            (200, ALLOW, accepted, "receipt_missing"),
            (200, {**ALLOW, "Countersign-Receipt": "a.b.c"}, accepted, "receipt_malformed"),
            (503, {}, {"detail": {"error": "unavailable"}}, "unavailable"),
            (404, {}, {"error": "not_found"}, "not_found"),
        ]:
            with self.subTest(reason=reason, reply=reply), Gateway(status, headers, json.dumps(reply).encode()) as g:
                gate = client(g.url)
                event = {"tool_name": "t", "proposed_arguments": {}}
                checked = gate.check_tool_call(event, session="s")
                self.assertEqual((checked.allowed, checked.verdict.reason), (False, reason))
                with self.assertRaises(countersign.Refused):
                    gate.gate_action(event, self.fail, session="s")
        for reply, reason in [({"decision": "allowed"}, "receipt_missing"), ({"decision": "denied"}, "bad_reply"), ({}, "bad_reply")]:
            with self.subTest(reason=reason, reply=reply), Gateway(200, ALLOW, json.dumps(reply).encode()) as g:
                checked = client(g.url).evaluate_action({"id": "m"}, {"type": "t"}, session="s")
                self.assertEqual((checked.allowed, checked.verdict.reason), (False, reason))
        gate = client("http://127.0.0.1:1")
        self.assertEqual(gate.check_tool_call({"tool_name": "t"}, session="s").verdict.reason, "not_reachable")
        for session in (None, 5, "", " s", "s\n", "s\u00e9"):
            self.assertEqual(gate.check_tool_call({"tool_name": "t"}, session=session).verdict.reason, "bad_arguments")
        for event in (None, [], {"tool_name": 5}, {"n": float("nan")}):
            with self.assertRaises(countersign.Refused):
                gate.gate_action(event, self.fail, session="s")

    def test_the_gateway_is_asked_too(self):
        """verify_online: a receipt counts only if the gateway says so, in exactly one form."""
        case = next(c for c in json.loads(VECTORS.read_text())["cases"] if c["name"] == "good")
        call = countersign.Call("send_email", json.loads(case["call"]["arguments"]), "s1", "c1")
        for status, answer, problem in [
            (200, {"valid": True, "decision_id": "d", "nonce": "n", "expires_at": "2026-11-25T12:00:00Z"}, ""),
            (200, {"valid": False, "reason": "receipt_key_retired"}, "receipt_key_retired"),
            (200, {"valid": 1}, "unverifiable"),
            (200, {"valid": "true"}, "unverifiable"),
            (200, {}, "unverifiable"),
            (200, [], "unverifiable"),
            (201, {"valid": True}, "unverifiable"),
            (404, {"error": "not_found"}, "unverifiable"),
            (503, {"error": "unverifiable"}, "unverifiable"),
            (0, {}, "unverifiable"),
        ]:
            with self.subTest(status=status, answer=answer), Gateway(status, {}, json.dumps(answer).encode()) as g:
                gate = client(g.url, verify_online=True)
                self.assertEqual(gate._refuted(case["receipt"], case["key"], call), problem)
                header = {**ALLOW, "Countersign-Receipt": case["receipt"], "Countersign-Key": case["key"]}
                with unittest.mock.patch.object(gate._keys, "check", return_value={"nonce": "n", "expires_at": "2026-11-25T12:00:00Z"}):  # the vector's time is over
                    verdict = gate._verdict(call, "allow", {}, header)
                self.assertEqual((verdict.allowed, verdict.reason), (not problem, problem))
        self.assertEqual(client("http://127.0.0.1:1", verify_online=True)._refuted("r", "k", call), "unverifiable")

    def test_a_producer_in_doubt_sends_the_same_event(self):
        """An event in doubt comes before the next one, as it was; a refusal later does not tell that it is not stored."""
        in_doubt, stopping = (504, {}, b'{"error":"in_doubt"}'), (503, {}, b'{"error":"stopping"}')
        with Gateway(200, {}, b"{}", first=[in_doubt, stopping, (401, {}, b"{}"), (401, {}, b"{}")]) as g:
            producer = countersign.AAEPProducer(client(g.url), agent_id="a")
            with self.assertRaises(ValueError):
                producer.emit("agent.progress.updated", percent=float("nan"))  # nothing was sent
            with unittest.mock.patch.object(_client, "_REPORT_TIME", 15), self.assertRaises(countersign.NotStored) as caught:
                producer.emit("agent.progress.updated")
            self.assertEqual((caught.exception.code, caught.exception.certain), ("http_401", False))
            with self.assertRaises(countersign.NotStored) as next_one:
                producer.emit("agent.progress.updated")
            self.assertEqual((next_one.exception.code, next_one.exception.certain), ("http_401", True))
            self.assertEqual(producer.emit("agent.progress.updated")["sequence_number"], 1)
            sent = [event for [event] in g.events]
            self.assertEqual(sent[:5], [caught.exception.event] * 5)
            self.assertEqual([e["sequence_number"] for e in sent], [0, 0, 0, 0, 0, 1])

    def test_producers_outlast_a_restart_of_the_gateway(self):
        for protocol, produce in [
            ("agenthook", lambda gate: countersign.AgentHookPublisher(gate, session="s", source="a").publish("PostToolUse")),
            ("aaep", lambda gate: countersign.AAEPProducer(gate, agent_id="a").emit("agent.progress.updated")),
        ]:
            with self.subTest(protocol), Gateway(200, {}, b"{}", first=[(0, {}, b"")]) as g, unittest.mock.patch.object(_client, "_REPORT_TIME", 15):
                event = produce(client(g.url))
                self.assertEqual(g.events, [[event], [event]])

    def test_an_event_that_a_publisher_made_can_be_sent_again(self):
        with Gateway(200, {}, b"{}", first=[(504, {}, b'{"error":"in_doubt"}')]) as g:
            hooks = countersign.AgentHookPublisher(client(g.url), session="s", source="a")
            with self.assertRaises(countersign.NotStored) as caught:
                hooks.publish("SessionStart")
            client(g.url).publish("agenthook", caught.exception.event)
            self.assertEqual(g.events[0], g.events[1])

    def test_a_producer_goes_on_after_a_refusal(self):
        with Gateway(200, {}, b"{}", first=[(403, {}, b'{"error":"forbidden"}')]) as g:
            producer = countersign.AAEPProducer(client(g.url), agent_id="a")
            with self.assertRaises(countersign.NotStored) as caught:
                producer.emit("agent.progress.updated")
            self.assertEqual((caught.exception.code, caught.exception.certain), ("forbidden", True))
            self.assertEqual([producer.emit("agent.progress.updated")["sequence_number"] for _ in range(2)], [0, 1])

    def test_what_is_not_stored(self):
        for status, answer, code, certain, failed in [
            (429, b'{"error":"rate_limited"}', "rate_limited", True, None),
            (429, b'{"error":"rate_limited","failed":[1]}', "rate_limited", True, [1]),
            (503, b'{"error":"not_stored","failed":"all"}', "not_stored", True, None),
            (504, b'{"error":"in_doubt","failed":[0,2]}', "in_doubt", False, [0, 2]),
            (502, b"<html>", "http_502", False, None),
            (0, b"", "not_reachable", False, None),
        ]:
            with self.subTest(code=code), Gateway(status, {}, answer) as g, self.assertRaises(countersign.NotStored) as caught:
                client(g.url).publish("agenthook", {})
            e = caught.exception
            self.assertEqual((e.code, e.certain, e.failed), (code, certain, failed))
        for url, event, code in [("http://127.0.0.1:1", {}, "not_reachable"), ("http://127.0.0.1:1", {"x": "x" * (1 << 20)}, "request_too_large")]:
            with self.assertRaises(countersign.NotStored) as caught:
                client(url).publish("agenthook", event)
            self.assertEqual((caught.exception.code, caught.exception.certain), (code, True))

    def test_exceptions_cross_processes(self):
        for e in (
            countersign.Refused(countersign.Verdict("ask", "later", "w1")), countersign.BadReceipt("receipt_expired", "the receipt has expired"),
            countersign.NotStored("in_doubt", False, [3], {"event_id": "e"}),
        ):
            copy = pickle.loads(pickle.dumps(e))
            self.assertEqual((type(copy), str(copy), vars(copy)), (type(e), str(e), vars(e)))

    def test_a_call_is_a_key(self):
        call = countersign.Call("t", {"x": [1]}, "s")
        self.assertIn(call, {call: 1})

    def running(self, g, call):
        """Run a call that the gateway allows; its receipt is not looked at."""
        gate = client(g.url)
        claims = {"nonce": call.event_id, "expires_at": "2126-11-25T12:00:00Z"}
        with unittest.mock.patch.object(gate._keys, "check", return_value=claims), gate.run(call):
            pass

    def test_the_largest_call_is_on_record(self):
        """What is admitted can be reported: the arguments are in each event once."""
        with Gateway(200, {**ALLOW, "Countersign-Workflow-Id": "w" * 128, "Countersign-Decision-Id": "d" * 128}, body("allow")) as g:
            def call(size):
                return countersign.Call("t", {"text": "x" * size}, "s")

            self.running(g, call(0))
            largest = _client._MAX_REQUEST - len(_client.dump(g.events[0]))
            self.running(g, call(largest))
            with self.assertRaises(countersign.Refused) as caught:
                self.running(g, call(largest + 1))
            self.assertEqual(caught.exception.verdict.reason, "request_too_large")
            proposed, reports, [blocked] = g.events[2], g.events[3], g.events[4]
            self.assertEqual(len(_client.dump(proposed)), _client._MAX_REQUEST)
            self.assertLess(len(_client.dump(reports)), 1 << 20)
            self.assertEqual((reports[0]["metadata"]["tool_input_executed"], len(g.events)), (proposed["tool_input"], 5))
            self.assertEqual(blocked["event_type"], "ToolUseBlocked")

    def test_a_report_names_the_approval(self):
        with Gateway(200, {**ALLOW, "Countersign-Workflow-Id": "w1", "Countersign-Decision-Id": "d1"}, body("allow")) as g:
            self.running(g, countersign.Call("t", {}, "s"))
            self.assertEqual(g.events[1][0]["metadata"]["approval"], {"required": True, "status": "approved", "workflow_id": "w1", "decision_ref": "d1"})
        with Gateway(200, ALLOW, body("allow")) as g:
            self.running(g, countersign.Call("t", {}, "s"))
            self.assertNotIn("approval", g.events[1][0]["metadata"])

    def test_a_call_names_its_agent_and_its_trace(self):
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        call = countersign.Call("t", {}, "s", agent="billing", traceparent=trace)
        with Gateway(200, ALLOW, body("allow")) as g:
            self.running(g, call)
            self.assertEqual([(e["agent_id"], e["metadata"]["traceparent"]) for e in (g.events[0], g.events[1][0])], [("billing", trace)] * 2)
            client(g.url).admit_native("tool", {}, call)
            self.assertEqual([g.headers[2].get(name) for name in ("Countersign-Agent", "traceparent")], ["billing", trace])
            unsaid = client(g.url).admit_native("tool", {}, countersign.Call("t", {}, "s", agent="b\nx: y"))
            self.assertEqual((unsaid.verdict.reason, len(g.events)), ("bad_arguments", 3))

    def test_reports_outlast_a_restart_of_the_gateway(self):
        """The same report again; not for a refusal that stays, and not for ever."""
        allowed, away, stopping = (200, ALLOW, body("allow")), (0, {}, b""), (503, {}, b'{"error":"stopping"}')
        for seconds, answers, last, reports in [(15, [away, stopping], 200, 3), (15, [], 401, 1), (0.2, [], 503, 1)]:
            with self.subTest(last), Gateway(last, {}, b"{}", first=[allowed, *answers]) as g, unittest.mock.patch.object(_client, "_REPORT_TIME", seconds):
                self.running(g, countersign.Call("t", {}, "s"))
                self.assertEqual([event for [event] in g.events[1:]], [g.events[-1][0]] * reports)

    def test_an_identical_call_names_the_workflow_of_the_one_before(self):
        """Until there is another decision; of another session, agent, tool or other arguments none is known."""
        ask = (200, {"Countersign-Verdict": "ask", "Countersign-Workflow-Id": "w1", "Countersign-Decision-Id": "d1"}, body("ask", "later"))
        denied = (200, {"Countersign-Verdict": "deny", "Countersign-Decision-Id": "d2"}, body("deny", "no"))
        reported, away = (200, {}, b"{}"), (503, {}, b'{"error":"unavailable"}')

        def named(call, *answers):
            with Gateway(*reported, first=[part for answer in answers for part in (answer, reported)]) as g:
                gate = client(g.url)
                for asked in [call] * (len(answers) - 1) + [countersign.Call("t", {"b": 2, "a": 1}, "s", agent="a")]:
                    with self.assertRaises(countersign.Refused) as caught, gate.run(asked):
                        self.fail("it ran")
                return [headers.get("Countersign-Workflow-Id", "") for headers in g.headers[::2]], str(caught.exception)

        first = countersign.Call("t", {"a": 1, "b": 2}, "s", agent="a")
        workflows, text = named(first, ask, away, ask, denied, ask)
        self.assertEqual(workflows, ["", "w1", "w1", "w1", ""])
        self.assertEqual(text, "ask: later (workflow w1). Do not try another way; repeat the identical call once it is approved.")
        for change in ({"session": "s2"}, {"agent": ""}, {"tool": "u"}, {"arguments": {"a": 1}}):
            with self.subTest(change):
                self.assertEqual(named(dataclasses.replace(first, **change), ask, ask)[0], ["", ""])

    def test_workflows_are_forgotten_in_their_order(self):
        waiting = _client._Waiting()
        waiting.LIMIT = 2
        for n in range(3):
            waiting.keep(bytes([n]), f"w{n}")
        self.assertEqual([waiting.take(bytes([n])) for n in (0, 1, 2, 2)], ["", "w1", "w2", ""])

    def test_a_verdict_is_no_truth_value(self):
        """`if gate.admit(call):` would run what was denied."""
        for decision in ("allow", "ask", "deny"):
            verdict = countersign.Verdict(decision, "")
            for wrong in (verdict, countersign.Checked(verdict, {})):
                with self.assertRaisesRegex(TypeError, "allowed"):
                    bool(wrong)

    def test_a_defer_is_not_waited_for(self):
        with Gateway(200, {"Countersign-Verdict": "defer", "Countersign-Workflow-Id": "w1"}, body("ask", "later")) as g:
            verdict = client(g.url).admit(countersign.Call("t", {}, "s"), wait=3600)
            self.assertEqual((verdict.decision, verdict.reason, verdict.workflow, len(g.tokens)), ("defer", "later", "w1", 1))

    def test_gone(self):
        with Gateway(200, {}, b"") as g:
            url = g.url
        self.refused(client(url), "not_reachable")

    def test_a_redirect_does_not_carry_the_token(self):
        with Gateway(200, ALLOW, body("allow")) as thief, Gateway(307, {"Location": thief.url}, b"{}") as g:
            self.refused(client(g.url), "http_307")
            self.assertEqual(thief.tokens, [])

    def test_arguments_that_are_no_json(self):
        with Gateway(200, ALLOW, body("allow")) as g:
            gate = client(g.url)

            @gate.guard(session="s")
            def tool(x):
                self.fail("it ran")

            for value in (object(), float("nan"), 2**60):
                with self.assertRaises(countersign.Refused):
                    tool(value)
                with self.assertRaises(countersign.Refused) as caught, gate.run(countersign.Call("t", {"x": value}, "s")):
                    self.fail("it ran")
                self.assertEqual(caught.exception.verdict.reason, "bad_arguments")
            self.assertEqual(g.tokens, [])

    def test_what_cannot_be_guarded(self):
        gate = client("http://127.0.0.1:1")

        async def coroutine():
            pass

        def generator():
            yield

        def nameless(*args):
            pass

        class Mailbox:
            def send(self, to):
                pass

        for function in (coroutine, generator, nameless, Mailbox.send):
            with self.assertRaises(TypeError):
                gate.guard(session="s")(function)
        for function in (coroutine, generator):
            with self.assertRaises(TypeError):
                gate.gate_action({"tool_name": "t", "proposed_arguments": {}}, function, session="s")

    def test_a_tool_of_asyncio(self):
        """It runs on its loop, which goes on while a thread asks and reports; its end is that of the call."""
        session, asked, reports = contextvars.ContextVar("session"), threading.Event(), []
        gate = client("http://127.0.0.1:1")

        def admit(call, *args):
            self.assertTrue(asked.wait(10), "the loop stands still")
            return countersign.Verdict("allow", "", nonce=call.event_id, until=2e9)

        async def tool(x):
            await asyncio.sleep(0)
            return x + 1 if x else 1 / x

        async def main():
            loop = asyncio.get_running_loop()

            @gate.guard(session=session.get)
            def guarded(x):
                return asyncio.run_coroutine_threadsafe(tool(x), loop).result()

            session.set("s-loop")
            running = asyncio.create_task(asyncio.to_thread(guarded, 1))
            loop.call_later(0.05, asked.set)
            self.assertEqual(await running, 2)
            with self.assertRaises(ZeroDivisionError):
                await asyncio.to_thread(guarded, 0)

        gate.admit = admit
        gate._report = lambda call, event_type, metadata, seconds: reports.append((call.session, metadata["execution"]["outcome"]))
        asyncio.run(main())
        self.assertEqual(reports, [("s-loop", "succeeded"), ("s-loop", "failed")])

    def test_a_guard_of_many_sessions(self):
        """Session and agent of each call are those of its context."""
        session, agent = contextvars.ContextVar("session"), contextvars.ContextVar("agent", default="")
        with Gateway(200, {"Countersign-Verdict": "deny"}, body("deny", "no")) as g:
            tool = client(g.url).guard(session=session.get, agent=agent.get, tool="t")(self.fail)
            for s, a in (("s1", ""), ("s2", "billing")):
                context = contextvars.copy_context()
                context.run(session.set, s)
                context.run(agent.set, a)
                with self.assertRaises(countersign.Refused):
                    context.run(tool, "x")
            self.assertEqual([(e["session_id"], e.get("agent_id", "")) for e in g.events[::2]], [("s1", ""), ("s2", "billing")])
            with self.assertRaises(LookupError):
                tool("x")

    def test_what_runs_is_what_was_admitted(self):
        gate = client("http://127.0.0.1:1")
        gate.admit = lambda *args: countersign.Verdict("allow", "", nonce=args[0].event_id, until=2e9)

        def rows(**filters):
            self.assertEqual(filters, {"id": 5})

        def classify(cls, text):
            return cls + text

        def position(x, /, **more):
            self.fail("it ran")

        class Mailbox:
            def send(self, to):
                return to

        gate.guard(session="s")(rows)(id=5)
        self.assertEqual(gate.guard(session="s")(classify)("a", "b"), "ab")
        self.assertEqual(gate.guard(session="s")(Mailbox().send)("dana"), "dana")
        for function, args, more in ((rows, (), {"filters": {"id": 5}}), (position, (1,), {"x": 2})):
            with self.assertRaises(TypeError):
                gate.guard(session="s")(function)(*args, **more)

        async def later():
            self.fail("it ran")

        call, reports = later(), []
        gate._report = lambda call, event_type, metadata, seconds: reports.append(metadata["execution"]["outcome"])
        gate.admit_native = lambda *args: countersign.Checked(gate.admit(args[2]), {})
        with self.assertRaises(TypeError):
            gate.guard(session="s")(lambda: call)()
        with self.assertRaises(TypeError):
            gate.gate_action({"tool_name": "t", "proposed_arguments": {}}, lambda: call, session="s")
        call.close()
        self.assertEqual(reports, ["failed", "failed"])

    def test_a_report_that_fails_hides_nothing(self):
        gate = client("http://127.0.0.1:1")
        gate.admit = lambda *args: countersign.Verdict("allow", "", nonce=args[0].event_id, until=2e9)
        with unittest.mock.patch.object(gate, "publish", side_effect=RuntimeError("no thread")):
            with gate.run(countersign.Call("t", {}, "s")):
                pass

    def test_a_refusal_repeats_no_request(self):
        for answer in ({"error": "Authorization: Bearer token"}, {"reason": "x" * 100}, {"detail": {"error": ["token"]}}, {"detail": "token"}):
            with Gateway(418, {}, json.dumps(answer).encode()) as g:
                self.refused(client(g.url), "http_418")
                with self.assertRaisesRegex(OSError, "not stored: http_418$"):
                    client(g.url).publish("agenthook", {})

    def test_a_reply_without_a_receipt_says_nothing(self):
        accepted = {"recommended_action": "accept", "execution_policy": {"execution_allowed": True}}
        with Gateway(200, ALLOW, json.dumps(accepted).encode()) as g:
            checked = client(g.url).check_tool_call({"tool_name": "t", "proposed_arguments": {}}, session="s")
        self.assertEqual((checked.verdict.reason, checked.reply), ("receipt_missing", {}))

    def test_used_receipts_are_forgotten_when_they_end(self):
        used = _client._Used()
        used.LIMIT = 2
        with unittest.mock.patch("time.time") as clock:
            clock.return_value = 100
            self.assertEqual([used.mark("a", 160), used.mark("a", 160), used.mark("b", 200), used.mark("c", 160)], ["", "receipt_used", "", "receipt_use_unknown"])
            clock.return_value = 161
            self.assertEqual(used.mark("c", 220), "")
            self.assertEqual([used.mark("a", 160), used.mark("b", 200), used.mark("d", 230)], ["receipt_used", "receipt_used", "receipt_use_unknown"])

    def test_waiting_asks_for_the_workflow_and_again_once_it_is_decided(self):
        verdict, asks, waits = self.wait_for(3600, later=body("deny", "no"))
        self.assertEqual((verdict.reason, asks, waits), ("no", ["", "w1"], ["/v1/approvals/w1?wait=30"]))

    def test_waiting_outlasts_an_outage_of_the_log_and_a_quota(self):
        for reason in ("audit_unavailable", "quota_exceeded"):
            verdict, asks, _ = self.wait_for(3600, json.dumps({"decision": "deny", "reason": reason}).encode(), later=body("deny", "no"))
            self.assertEqual((verdict.reason, asks), ("no", ["", "w1", "w1"]))

    def test_waiting_outlasts_a_restart_of_the_gateway(self):
        verdict, asks, _ = self.wait_for(3600, b"<html>502</html>", later=body("deny", "no"))
        self.assertEqual((verdict.reason, asks), ("no", ["", "w1", "w1"]))
        verdict, asks, _ = self.wait_for(0.5, later=b"<html>502</html>")
        self.assertEqual((verdict.decision, verdict.workflow, asks), ("ask", "w1", ["", "w1"]))
        verdict, asks, _ = self.wait_for(3600, later=b'{"error": "unauthorized"}')
        self.assertEqual((verdict.reason, asks), ("unauthorized", ["", "w1"]))

    def test_an_approval_whose_allow_was_lost(self):
        """It is used up: one more ask would open another workflow."""
        verdict, asks, waits = self.wait_for(3600, b"<html>502</html>", later=body("deny", "no"), statuses=["approved", "consumed"])
        self.assertEqual((verdict.decision, verdict.reason, verdict.workflow), ("deny", "approval_used", "w1"))
        self.assertEqual((asks, len(waits)), (["", "w1"], 2))

    def wait_for(self, seconds, *answers, later, statuses=("denied",)):
        """Ask a gateway that first says ask, and has the workflow decided at once, with these statuses, the last one for ever."""
        asks, waits = [], []
        answers = [body("ask", "later"), *answers]

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                waits.append(self.path)
                status = statuses[min(len(waits), len(statuses)) - 1]
                self.answer(json.dumps({"workflow_id": "w1", "status": status}).encode(), {})

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                asks.append(self.headers.get("Countersign-Workflow-Id", ""))
                text = answers[len(asks) - 1] if len(asks) <= len(answers) else later
                word = json.loads(text).get("decision") if b"event_id" in text else None
                self.answer(text, {"Countersign-Verdict": word, "Countersign-Workflow-Id": "w1"} if word else {}, 200 if word else 502)

            def answer(self, text, headers, status=200):
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            verdict = client(f"http://127.0.0.1:{server.server_address[1]}").admit(countersign.Call("t", {}, "s"), wait=seconds)
            server.shutdown()
        return verdict, asks, waits

    def test_all_addresses_share_one_time(self):
        waits = []

        def connect(where, timeout):
            waits.append(timeout)
            now.return_value += timeout
            if where == answers:
                return ours
            raise TimeoutError("nobody") if len(waits) % 2 else OSError("no route")

        hosts = [(f"192.0.2.{n}", 443) for n in range(4)]
        addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", where) for where in hosts]
        ours, theirs = socket.socketpair()
        with ours, theirs, unittest.mock.patch("time.monotonic") as now, unittest.mock.patch("socket.getaddrinfo", return_value=addresses), \
                unittest.mock.patch("socket.create_connection", connect):
            for answers, want in ((None, [1.0] * 4), (hosts[2], [1.0] * 3)):
                waits.clear()
                now.return_value = 100.0
                watchdog = _client._Watchdog(4.0)
                if answers:
                    self.assertIs(watchdog.connect(("gateway.example", 443)), ours)
                    self.assertEqual(ours.gettimeout(), 2.0)
                    watchdog._socket.close()
                else:
                    with self.assertRaises(OSError):
                        watchdog.connect(("gateway.example", 443))
                self.assertEqual(waits, want)

    def test_an_interrupted_producer(self):
        """Its event may be stored: it comes before the next one."""
        class Interrupt(BaseException):
            pass

        with Gateway(200, {}, b"{}") as g:
            gate = client(g.url)
            producer = countersign.AAEPProducer(gate, agent_id="a")
            with unittest.mock.patch.object(gate, "publish", side_effect=Interrupt), self.assertRaises(Interrupt):
                producer.emit("agent.session.started")
            producer.emit("agent.progress.updated")
            self.assertEqual([(e["type"], e["sequence_number"]) for [e] in g.events], [("aaep:agent.session.started", 0), ("aaep:agent.progress.updated", 1)])

    def test_answers_that_no_code_foresees(self):
        for head in ("W10", "eyJraWQiOltdfQ", "eyJraWQiOjFlLTk5OTk5OTk5OTk5OTk5OTk5OTk5fQ"):
            with Gateway(200, {**ALLOW, "Countersign-Receipt": head + ".e30.AAAA", "Countersign-Key": '{"vouch":5}'}, body("allow")) as g:
                self.refused(client(g.url), "receipt_malformed")
        with Gateway(200, ALLOW, b'{"decision":"allow","reason":"","x":1e-99999999999999999999}') as g:
            self.refused(client(g.url), "bad_reply")

    def test_a_token_for_each_request(self):
        tokens = iter(["t1", "t2", "bad\n", None])
        with Gateway(200, {"Countersign-Verdict": "deny"}, body("deny", "no")) as g:
            gate = countersign.Client(g.url, lambda: next(tokens), tenant="acme", publisher="runtime", public_key=public_key())
            self.assertEqual([gate.admit(countersign.Call("t", {}, "s")).reason for _ in range(5)], ["no", "no", "no_token", "no_token", "no_token"])
            self.assertEqual(g.tokens, ["Bearer t1", "Bearer t2"])
            with self.assertRaises(countersign.NotStored) as caught:
                gate.publish("agenthook", {})
            self.assertTrue(caught.exception.certain)

    def test_a_token_is_not_shown(self):
        with self.assertRaises(ValueError) as caught:
            countersign.Client("http://127.0.0.1:1", "s3cret\n", tenant="a", publisher="p", public_key=public_key())
        self.assertNotIn("s3cret", str(caught.exception))

    def test_addresses(self):
        for url in ("http://gateway.example", "ftp://127.0.0.1", "gateway", "http://127.0.0.1.example"):
            with self.assertRaises(ValueError):
                client(url)
        with self.assertRaises(ValueError):
            countersign.Client("http://127.0.0.1:1", "t", tenant="a", publisher="p", public_key="nonsense")

    def test_ready_files_that_others_read_or_that_were_left_behind(self):
        def read(mode=0o600, **owner):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "ready.json")
                path.write_text(json.dumps({
                    "gateway_url": "http://127.0.0.1:1", "tenant": "acme", "public_key": public_key(),
                    "roles": {"runtime": {"token": "t", "publisher": "p"}}, "owner": owner or None,
                }))
                path.chmod(mode)
                countersign.Client.from_ready_file(path)

        process = subprocess.Popen(["sleep", "60"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        here = {"pid": process.pid, "started": _ready._start_of(process.pid), "machine": _ready._machine()}
        read()
        read(**here)
        read(**{**here, "started": "1", "machine": "another"})
        with self.assertRaisesRegex(ValueError, "by others"):
            read(0o640, **here)
        if not here["machine"]:
            self.skipTest("this system does not tell when processes started")
        with self.assertRaisesRegex(ValueError, "left behind"):
            read(**{**here, "started": "1"})
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        for _ in range(2):  # before and after its parent knows
            with self.assertRaisesRegex(ValueError, "left behind"):
                read(**here)
            process.wait()


if __name__ == "__main__":
    unittest.main()
