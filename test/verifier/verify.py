#!/usr/bin/env python3
"""A second verifier of Countersign's evidence, written from
docs/evidence-format.md and nothing else. It needs Python 3 alone: no server, no
network, no other package.

  verify.py --bundle FILE --key KEY [--witness KEY ...]    an exported session or range
  verify.py --vectors test/verifier/example.md             the example of the format

Exit 0: everything holds; 1: something does not; 2: wrong usage.
"""

import argparse
import mmap
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import bundle  # noqa: E402
import vectors  # noqa: E402
from signed import Bad  # noqa: E402


def text_or_file(value):
    """A key, or the content of the file that holds it."""
    if "+" in value and not os.path.exists(value):
        return value
    with open(value, encoding="utf-8") as f:
        return f.read()


def verify_bundle(path, key, witnesses):
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        b = bundle.Bundle(raw, key, witnesses)
        for member, what in b.failures:
            print("FAIL  %s: %s" % (member, what))
        if b.failures:
            print("DOES NOT HOLD  %s: %d problems" % (path, len(b.failures)))
            return 1
        s, c = b.records, b.checkpoint
        print("holds  %s of shard %s" % (b.summary(), c.shard))
        print("       %d decisions and %d approvals, %d keys vouched for" % (s.decisions, s.approvals, len(b.keys)))
        print("       %d of their signatures verified" % (s.decisions + s.approvals - s.unchecked))
        if s.unchecked:
            print("       %d signatures were not checked: a credential was taken out of a name that they cover" % s.unchecked)
        print("       checkpoint of size %d, root %s%s" % (c.size, c.root.hex(), "".join(", cosigned by " + w for w in b.cosigned)))
        if b.reasons:
            print("       %d texts expired, and nothing proves their kind, subject, time and body digest: %s" % (s.expired, ", ".join("%d under policy %s" % (n, p) for p, n in sorted(b.reasons.used.items()))))
        known = [m.name for m in b.members if m.name in ("README.txt", "records.parquet", "in_force.json", "report.html", "controls.json")]
        if known:
            print("       %s are known by their digests only; statement: %s" % (", ".join(known), "signed by key " + b.signer if b.signer else "none"))
    return 0


def verify_vectors(path):
    with open(path, encoding="utf-8") as f:
        done, failures = vectors.check(f.read())
    for what in failures:
        print("FAIL  " + what)
    print("%s  %s: %d checks" % ("DOES NOT HOLD" if failures else "holds", path, done))
    return 1 if failures else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bundle", help="an exported session or range")
    p.add_argument("--key", help="the public checkpoint key, or a file that holds it")
    p.add_argument("--witness", action="append", default=[], help="the public key of a witness that must have signed the checkpoint")
    p.add_argument("--vectors", help="the page whose example is checked")
    a = p.parse_args()
    if bool(a.bundle) == bool(a.vectors) or bool(a.bundle) != bool(a.key):
        p.error("give --bundle and --key, or --vectors")
    try:
        if a.vectors:
            return verify_vectors(a.vectors)
        return verify_bundle(a.bundle, text_or_file(a.key), [text_or_file(w) for w in a.witness])
    except (OSError, ValueError, Bad) as e:
        print("verify.py: %s" % e, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
