"""Ask Countersign before a tool runs, run it only under a valid receipt, and report what ran.

    gate = countersign.Client.from_ready_file("ready.json")

    @gate.guard(session="s-1")
    def send_email(to, subject):
        ...

    send_email(to="dana@acme.example", subject="Minutes")   # raises Refused unless it is allowed

Everything fails closed: an error, a time-out, or a receipt that is missing, bad, or of another call
is a refusal. What a person must approve is refused at first; once it is approved, the identical call runs,
once. Only the standard library is needed.
"""

from ._client import Call, Checked, Client, NotStored, Refused, Verdict
from ._producers import AAEPProducer, AgentHookPublisher
from ._receipt import BadReceipt, Keyring

__all__ = ["AAEPProducer", "AgentHookPublisher", "BadReceipt", "Call", "Checked", "Client", "Keyring", "NotStored", "Refused", "Verdict"]
__version__ = "0.1.0"
