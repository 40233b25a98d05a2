// The replies of real admissions, which a Go test writes (client/replies_test.go).

import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import test from 'node:test';
import {Client} from '../index.js';

const {tenant, publisher, public_key: publicKey, answers, cases} = JSON.parse(readFileSync(new URL('../../vectors/replies.json', import.meta.url), 'utf8'));

for (const c of cases) {
  test(c.name, async (t) => {
    t.mock.timers.enable({apis: ['Date'], now: Date.parse(c.now)});
    const {status, headers, body} = answers[c.answer].http;
    const gate = new Client({tenant, publisher, publicKey, transport: {admit: async () => ({status, headers: new Headers(headers), text: body})}});
    const call = {
      tool: c.call.tool, session: c.call.session, callId: c.call.tool_call_id, eventId: 'e', arguments: c.call.arguments === null ? undefined : JSON.parse(c.call.arguments),
    };
    const verdict = c.protocol === 'agenthook' ? await gate.admit(call) : (await gate.admitNative(c.protocol, {}, call)).verdict;
    assert.deepEqual([verdict.decision, verdict.reason, verdict.workflow !== '', verdict.allowed], [c.decision, c.reason, c.workflow, c.decision === 'allow']);
  });
}
