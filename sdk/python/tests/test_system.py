"""Against a running system: COUNTERSIGN_READY_FILE names its ready file. Its policies are those of
test/sdk_test.go."""

import json
import os
import pathlib
import subprocess
import time
import unittest
import uuid
from datetime import datetime, timezone

import countersign

ROOT = pathlib.Path(__file__).parents[3]
READY = os.environ.get("COUNTERSIGN_READY_FILE", "")


@unittest.skipUnless(READY, "COUNTERSIGN_READY_FILE names no ready file")
class System(unittest.TestCase):
    def setUp(self):
        self.gate = countersign.Client.from_ready_file(READY)
        self.session = os.environ.get("COUNTERSIGN_TEST_SESSION") or "py-" + uuid.uuid4().hex
        self.ran = []

    def test_guarded_tools(self):
        @self.gate.guard(session=self.session)
        def allowed_tool(path, size=1):
            self.ran.append((path, size))
            return "done"

        @self.gate.guard(session=self.session)
        def denied_tool(path):
            self.ran.append(path)

        @self.gate.guard(session=self.session, wait=0.5)
        def asked_tool(path):
            self.ran.append(path)

        self.assertEqual(allowed_tool("/a"), "done")
        with self.assertRaises(countersign.Refused) as denied:
            denied_tool("/b")
        self.assertEqual(denied.exception.verdict.reason, "This tool is forbidden.")
        with self.assertRaises(countersign.Refused) as asked:
            asked_tool("/c")
        self.assertEqual(asked.exception.verdict.decision, "ask")
        self.assertTrue(asked.exception.verdict.workflow)
        self.assertEqual(self.ran, [("/a", 1)])

    def test_what_runs_is_what_was_admitted(self):
        @self.gate.guard(session=self.session + "-named")
        def allowed_tool(path, **more):
            more["list"].append(3)  # the report has what was admitted all the same
            return path, more

        given = [1]
        self.assertEqual(allowed_tool("/a", list=given), ("/a", {"list": [1, 3]}))
        self.assertEqual(given, [1])

    def test_policies_see_the_agent(self):
        for agent, allowed in (("billing", True), ("", False)):
            call = countersign.Call("agent_tool", {}, self.session + "-agent", agent=agent)
            self.assertEqual(self.gate.admit(call).allowed, allowed)

    def test_a_large_call_is_reported(self):
        with self.gate.run(countersign.Call("allowed_tool", {"path": "/f", "text": "<" * 900_000}, self.session)):
            pass

    def test_an_approved_call_runs_once(self):
        call = countersign.Call("asked_tool", {"path": "/d"}, self.session)
        asked = self.gate.admit(call)
        self.assertEqual(asked.decision, "ask")
        subprocess.run([os.environ["COUNTERSIGN"], "approvals", "approve", asked.workflow, "--yes"], check=True, capture_output=True)
        with self.gate.run(call, wait=10) as verdict:
            self.assertTrue(verdict.allowed)
        with self.assertRaises(countersign.Refused):
            with self.gate.run(call):
                self.fail("an approval was used twice")

    def test_an_approval_that_comes_later_is_for_the_identical_call(self):
        session = self.session + "-later"
        event = {
            "tool_name": "asked_tool", "tool_category": "public_read", "authorization_state": "none", "evidence_refs": [],
            "risk_domain": "public_information", "proposed_arguments": {"path": "/i"}, "recommended_route": "accept",
        }
        same = countersign.Call("asked_tool", {"path": "/j"}, session)

        @self.gate.guard(session=session)
        def asked_tool(path):
            self.ran.append(path)

        def run_same():
            with self.gate.run(same):
                self.ran.append("/j")

        for attempt in (lambda: asked_tool("/h"), lambda: self.gate.gate_action(event, lambda path: self.ran.append(path), session=session), run_same):
            workflows = []
            for _ in range(2):
                with self.assertRaises(countersign.Refused) as asked:
                    attempt()
                workflows.append(asked.exception.verdict.workflow)
            self.assertEqual(workflows, [workflows[0]] * 2)
            subprocess.run([os.environ["COUNTERSIGN"], "approvals", "approve", workflows[0], "--yes"], check=True, capture_output=True)
            attempt()
            with self.assertRaises(countersign.Refused) as asked:
                attempt()
            self.assertNotEqual(asked.exception.verdict.workflow, workflows[0])
        self.assertEqual(self.ran, ["/h", "/i", "/j"])

    def test_a_failing_tool_is_reported(self):
        @self.gate.guard(session=self.session)
        def allowed_tool(path):
            raise RuntimeError("no")

        with self.assertRaises(RuntimeError):
            allowed_tool("/e")

    def test_events(self):
        self.gate.publish("agenthook", {
            "schema_version": 1, "event_id": str(uuid.uuid4()), "event_type": "SessionStart",
            "timestamp": "2026-11-25T12:00:00Z", "source": "test", "session_id": self.session,
        })
        with self.assertRaises(OSError):
            self.gate.publish("no-such-protocol", {})

    def test_producers(self):
        hooks = countersign.AgentHookPublisher(self.gate, session=self.session + "-hooks", source="test")
        self.assertEqual(hooks.publish("SessionStart")["event_type"], "SessionStart")
        with self.assertRaises(ValueError):
            hooks.publish("PreToolUse")
        producer = countersign.AAEPProducer(self.gate, agent_id="assistant", session="sess_" + uuid.uuid4().hex, agent_version="1")
        started = producer.emit("agent.session.started", aaep_version="1.0.0", request_text="Go.", summary_normal="Going.")
        waits = producer.emit("agent.state.changed", from_state="idle", to_state="awaiting_input", summary_normal="It waits.")
        asked = producer.emit("aaep:agent.awaiting.clarification", question="To where?", reply_token="rpl_" + uuid.uuid4().hex, timeout_seconds=30, summary_normal="It asks.")
        goes_on = producer.emit("agent.state.changed", from_state="awaiting_input", to_state="thinking", summary_normal="It goes on.")
        ended = producer.emit("agent.session.errored", error_category="transient", summary_normal="It failed.")
        self.assertEqual((started["sequence_number"], ended["sequence_number"], ended["type"]), (0, 4, "aaep:agent.session.errored"))
        check = [os.environ["COUNTERSIGN"], "check", "--protocol", "aaep", "--fail", "-"]
        subprocess.run(check, input=json.dumps([started, waits, asked, goes_on, ended]), text=True, check=True, capture_output=True)

    def test_aana(self):
        event = {
            "tool_name": "look_up_hours", "tool_category": "public_read", "authorization_state": "none", "evidence_refs": [],
            "risk_domain": "public_information", "proposed_arguments": {"shop": "north"}, "recommended_route": "accept",
        }
        session = self.session + "-aana"
        self.assertEqual(self.gate.gate_action(event, lambda shop: shop, session=session), "north")
        checked = self.gate.check_tool_call(event, session=session)
        self.assertTrue(checked.allowed)
        self.assertEqual(checked.reply["route"], "accept")
        for change in ({"recommended_route": "refuse"}, {"tool_category": "unknown"}, {"tool_category": "nonsense"}):
            self.assertFalse(self.gate.check_tool_call({**event, **change}, session=session).allowed)
            with self.assertRaises(countersign.Refused):
                self.gate.gate_action({**event, **change}, self.fail, session=session)
        self.assertFalse(self.gate.check_tool_call({"tool_name": "x"}, session=session).allowed)
        slow = countersign.Client.from_ready_file(READY)
        ask = slow._post

        def change_then_ask(*args):
            event["proposed_arguments"]["shop"] = "south"
            return ask(*args)

        slow._post = change_then_ask
        with self.assertRaises(countersign.Refused) as caught:
            slow.gate_action(event, self.fail, session=session)
        self.assertEqual(caught.exception.verdict.reason, "receipt_other_arguments")

    def test_aump(self):
        subprocess.run([os.environ["COUNTERSIGN"], "mandate", "put", str(ROOT / "examples/mandates/courier.json")], check=True, capture_output=True)
        request = json.loads((ROOT / "examples/requests/aump-action.json").read_text())
        mandate, action, session = request["mandate_ref"], request["proposed_action"], self.session + "-aump"
        checked = self.gate.evaluate_action(mandate, action, session=session, call_id="c-parcel")
        end = time.monotonic() + 30
        while checked.verdict.reason == "mandate_not_found" and time.monotonic() < end:  # until the admitter has it
            checked = self.gate.evaluate_action(mandate, action, session=session, call_id="c-parcel")
        self.assertTrue(checked.allowed, checked)
        self.assertEqual(checked.reply["decision"], "allowed")
        dear = {**action, "amount": {"currency": "EUR", "total_minor": 17_001}}  # 3,000 of 20,000 are reserved
        denied = self.gate.evaluate_action(mandate, dear, session=session)
        self.assertEqual((denied.verdict.decision, denied.reply["decision"]), ("deny", "denied"))
        self.assertIn("price_above_budget", denied.reply["reason_codes"])
        event = {
            "aump": {"version": "0.1.0", "type": "evidence_event"}, "id": "aump_ev_sdk", "mandate_ref": mandate, "sequence": 1,
            "created_at": datetime.now(timezone.utc).isoformat(), "event_type": "courier_booked", "summary": "Booked.",
            "result": "allowed", "actor": {"role": "runtime", "id": "rt-1"}, "privacy": {"retention": "hashes", "contains_private_fields": False},
        }
        self.gate.publish("aump", event, session=session)
        for wrong in ("s\nX: y", " s", "sé"):
            with self.assertRaises(ValueError):
                self.gate.publish("aump", event, session=wrong)


if __name__ == "__main__":
    unittest.main()
