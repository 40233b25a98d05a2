"""The golden vectors, which the Go client writes (client/guard/vectors_test.go)."""

import enum
import json
import pathlib
import unittest
from datetime import datetime

from countersign import BadReceipt, Keyring
from countersign._canonical import NotCanonical, canonical, parse
from countersign._ed25519 import verify, verify_in_python
from countersign._receipt import Expectation

VECTORS = pathlib.Path(__file__).parents[2] / "vectors"


def load(name):
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


class Canonical(unittest.TestCase):
    def test_vectors(self):
        for case in load("canonical.json"):
            with self.subTest(case["in"]):
                if "out" in case:
                    self.assertEqual(canonical(parse(case["in"])).decode(), case["out"])
                else:
                    with self.assertRaises(NotCanonical):
                        canonical(parse(case["in"]))

    def test_subclasses_of_numbers(self):
        class Level(int, enum.Enum):
            HIGH = 3

        class Share(float, enum.Enum):
            HALF = 0.5

        self.assertEqual(canonical({"level": Level.HIGH, "share": Share.HALF}), b'{"level":3,"share":0.5}')

    def test_what_is_no_json(self):
        for value in (float("nan"), {1: 2}, object(), "\ud800", 2**53 + 1, b"x", {"a": {1, 2}}):
            with self.assertRaises(NotCanonical):
                canonical(value)


class Receipts(unittest.TestCase):
    def test_vectors(self):
        vectors = load("receipts.json")
        for case in vectors["cases"]:
            with self.subTest(case["name"]):
                call = dict(case["call"])
                arguments = call.pop("arguments")
                want = Expectation(**call, arguments=None if arguments is None else parse(arguments))
                ring = Keyring(vectors["public_key"], records=case.get("records", ()))
                code = ""
                try:
                    ring.check(case["receipt"], case["key"], want, datetime.fromisoformat(case["now"].replace("Z", "+00:00")))
                except BadReceipt as e:
                    code = e.code
                self.assertEqual(code, case["code"])

    def test_records_that_nobody_vouches_for(self):
        vectors = load("receipts.json")
        retirement = next(r for case in vectors["cases"] for r in case.get("records", ()) if "retired_at" in r)
        spoiled = [dict(json.loads(retirement), **change) for change in (
            {"kid": "0" * 16}, {"kid": "x y"}, {"use": "checkpoint"}, {"retired_at": ""}, {"retired_at": "2026-11-23T12:00:00Z"}, {"vouch": 5}, {"vouch": ""})]
        for record in ["", "{}", "[]", "nonsense", *map(json.dumps, spoiled)]:
            with self.subTest(record), self.assertRaises(ValueError):
                Keyring(vectors["public_key"]).trust(record)

    def test_ed25519_in_python(self):
        """RFC 8032, section 7.1, test 2; and one that is not."""
        public = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
        signature = bytes.fromhex(
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        )
        for check in (verify, verify_in_python):
            self.assertTrue(check(public, b"\x72", signature))
            self.assertFalse(check(public, b"\x73", signature))
            self.assertFalse(check(public, b"\x72", signature[:32] + b"\xff" * 32))


if __name__ == "__main__":
    unittest.main()
