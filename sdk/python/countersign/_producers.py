"""Producers of events: AgentHook and AAEP. They fill in what every event has, and publish."""

from __future__ import annotations

import threading
import uuid
from datetime import datetime, timezone
from typing import Any

from ._client import Client, NotStored, _rfc3339

_AAEP_CONTEXT = "https://aaep-protocol.org/context/v1"


class AgentHookPublisher:
    """Publishes AgentHook events of one session.

        hooks = countersign.AgentHookPublisher(gate, session="s-1", source="my-agent")
        hooks.publish("SessionStart")
    """

    def __init__(self, gate: Client, *, session: str, source: str) -> None:
        self._gate, self._session, self._source = gate, session, source

    def publish(self, event_type: str, **fields: Any) -> dict[str, Any]:
        """Publish an event and return it once it is stored durably; raise NotStored otherwise.

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
        self._gate.publish("agenthook", event)
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
        self._lock, self._next, self._in_doubt = threading.Lock(), 0, False

    def emit(self, event_type: str, **fields: Any) -> dict[str, Any]:
        """Publish an event and return it once it is stored durably; raise NotStored otherwise.

        If that is certain, the next event gets the number. Otherwise it is not known whether the number is in use: the
        producer then refuses to go on, with RuntimeError. Begin a new session.
        """
        with self._lock:
            if self._in_doubt:
                raise RuntimeError("an event of this session is not certainly stored: begin a new session")
            event = {
                "@context": _AAEP_CONTEXT,
                "type": event_type if event_type.startswith("aaep:") else "aaep:" + event_type,
                "event_id": "evt_" + uuid.uuid4().hex,
                "session_id": self.session,
                "sequence_number": self._next,
                "timestamp": _rfc3339(datetime.now(timezone.utc)),
                "producer": self._producer,
                "urgency": "normal",
                **fields,
            }
            try:
                self._gate.publish("aaep", event)
            except ValueError:  # nothing was sent
                raise
            except BaseException as e:
                self._in_doubt = not (isinstance(e, NotStored) and e.certain)
                raise
            self._next += 1
        return event
