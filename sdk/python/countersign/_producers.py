"""Producers of events: AgentHook and AAEP. They fill in what every event has, and publish."""

from __future__ import annotations

import threading
import uuid
from datetime import datetime, timezone
from typing import Any

from . import _client
from ._client import Client, NotStored, _rfc3339

_AAEP_CONTEXT = "https://aaep-protocol.org/context/v1"
_CRITICAL = ("agent.session.errored", "agent.awaiting.confirmation", "agent.awaiting.clarification", "agent.handoff.requested")


class AgentHookPublisher:
    """Publishes AgentHook events of one session.

        hooks = countersign.AgentHookPublisher(gate, session="s-1", source="my-agent")
        hooks.publish("SessionStart")
    """

    def __init__(self, gate: Client, *, session: str, source: str) -> None:
        self._gate, self._session, self._source = gate, session, source

    def publish(self, event_type: str, **fields: Any) -> dict[str, Any]:
        """Publish an event and return it once it is stored durably.

        For 15 seconds it is sent again if it may be stored then. After that, or for a refusal that stays, raises NotStored,
        whose event can be given to Client.publish: the same event counts once, one made anew is another.
        Calls that are about to run are not published but asked about: Client.admit, run, guard.
        """
        if event_type == "PreToolUse":
            raise ValueError("a PreToolUse asks: use admit, run or guard")
        event = {
            "schema_version": 1,
            "event_id": str(uuid.uuid4()),
            "event_type": event_type,
            "timestamp": _rfc3339(datetime.now(timezone.utc)),
            "source": self._source,
            "session_id": self._session,
            **fields,
        }
        self._gate._publish_for(_client._REPORT_TIME, "agenthook", event)
        return event


class AAEPProducer:
    """Produces the AAEP events of one session, in order, with their sequence numbers.

        producer = countersign.AAEPProducer(gate, agent_id="travel-assistant")
        producer.emit("agent.session.started", request_text="Find a flight.", summary_normal="Looking for a flight.")

    It may be used from several threads. Its numbers begin at 0: a session has one producer, in one process.
    """

    def __init__(self, gate: Client, *, agent_id: str, session: str = "", **producer: Any) -> None:
        self.session = session or "sess_" + uuid.uuid4().hex
        self._gate, self._producer = gate, {"agent_id": agent_id, **producer}
        self._lock, self._next = threading.Lock(), 0
        self._in_doubt: dict[str, Any] | None = None  # the latest event, while it is not known whether it is stored

    def emit(self, event_type: str, **fields: Any) -> dict[str, Any]:
        """Publish an event and return it once it is stored durably.

        For 15 seconds it is sent again if it may be stored then. After that, or for a refusal that stays, raises NotStored.
        If it is certain that the event is not stored, the next one gets its number. Otherwise the producer keeps it and
        sends it before the next one, which is not sent until that has succeeded: do not emit it once more.
        """
        with self._lock:
            if self._in_doubt:
                try:
                    self._send(self._in_doubt)
                except NotStored as e:
                    raise NotStored(e.code, True) from e  # of the new event
            event_type = event_type.removeprefix("aaep:")
            event = {
                "@context": _AAEP_CONTEXT,
                "type": "aaep:" + event_type,
                "event_id": "evt_" + uuid.uuid4().hex,
                "session_id": self.session,
                "sequence_number": self._next,
                "timestamp": _rfc3339(datetime.now(timezone.utc)),
                "producer": self._producer,
                "urgency": "critical" if event_type in _CRITICAL else "normal",
                **fields,
            }
            try:
                self._send(event)
            except ValueError:  # nothing was sent
                self._in_doubt = None
                raise
            except NotStored as e:
                if e.certain:
                    self._in_doubt = None
                raise
        return event

    def _send(self, event: dict[str, Any]) -> None:
        """Store an event and count its number. Until it returns the event is in doubt."""
        self._in_doubt = event
        self._gate._publish_for(_client._REPORT_TIME, "aaep", event)
        self._next, self._in_doubt = self._next + 1, None
