"""The replies of real admissions, which a Go test writes (client/replies_test.go)."""

import json
import pathlib
import unittest
from datetime import datetime
from email.message import Message
from unittest import mock

from countersign import Call, Client
from countersign._canonical import parse

VECTORS = json.loads((pathlib.Path(__file__).parents[2] / "vectors/replies.json").read_text(encoding="utf-8"))


def headers_of(answer):
    found = Message()
    for name, value in answer["headers"].items():
        found[name] = value
    return found


class Replies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gate = Client("https://gateway.example", "token", tenant=VECTORS["tenant"], publisher=VECTORS["publisher"], public_key=VECTORS["public_key"])

    def test_vectors(self):
        for case in VECTORS["cases"]:
            with self.subTest(case["name"]):
                verdict = self.verdict(case)
                self.assertEqual((verdict.decision, verdict.reason, verdict.workflow != ""), (case["decision"], case["reason"], case["workflow"]))
                self.assertEqual(verdict.allowed, case["decision"] == "allow")

    def verdict(self, case):
        answer = VECTORS["answers"][case["answer"]]["http"]
        call = case["call"]
        arguments = None if call["arguments"] is None else parse(call["arguments"])
        about = Call(call["tool"], arguments, call["session"], call["tool_call_id"])
        now = datetime.fromisoformat(case["now"].replace("Z", "+00:00"))
        answered = mock.patch.object(self.gate, "_post", return_value=(answer["status"], headers_of(answer), answer["body"].encode()))
        clock = mock.patch("countersign._receipt.datetime", mock.Mock(wraps=datetime, now=lambda _: now))
        with answered, clock:
            return self.gate.admit(about) if case["protocol"] == "agenthook" else self.gate.admit_native(case["protocol"], {}, about).verdict


if __name__ == "__main__":
    unittest.main()
