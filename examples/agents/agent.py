"""An agent whose tools run only under Countersign's word: one call is allowed, one is denied, and one
waits for a person.

    PYTHONPATH=sdk/python python3 examples/agents/agent.py ready.json
"""

import sys

import countersign

gate = countersign.Client.from_ready_file(sys.argv[1])
SESSION = "example-python"


@gate.guard(session=SESSION, tool="read_file")
def read_file(path):
    return f"the content of {path}"


@gate.guard(session=SESSION, tool="write_file")
def write_file(path, text):
    return f"{len(text)} characters in {path}"


@gate.guard(session=SESSION, tool="send_email", wait=60)
def send_email(to, subject):
    return f"sent to {to}"


def attempt(tool, *arguments):
    try:
        print(f"{tool.__name__}: {tool(*arguments)}", flush=True)
    except countersign.Refused as e:
        print(f"{tool.__name__}: refused: {e}", flush=True)


attempt(read_file, "/etc/hostname")
attempt(write_file, "/etc/passwd", "x")
attempt(send_email, "press@newspaper.example", "Figures")
