// Whatever the gateway does, nothing is allowed without a valid receipt.

import assert from 'node:assert/strict';
import {AsyncLocalStorage} from 'node:async_hooks';
import {spawn} from 'node:child_process';
import {chmodSync, existsSync, mkdtempSync, readFileSync, readlinkSync, rmSync, writeFileSync} from 'node:fs';
import {createServer} from 'node:http';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import test from 'node:test';
import {checkToolPrecheck, executeToolIfAllowed, shouldExecuteTool, toolPrecheckEvent} from '../aana.js';
import {callOf} from '../adapters/session.js';
import {Client, Keyring, newCall, NotStored, Refused} from '../index.js';
import {HTTP} from '../transport.js';

const publicKey = JSON.parse(readFileSync(new URL('../../vectors/receipts.json', import.meta.url), 'utf8')).public_key;

async function gateway(t, answer) {
  const seen = [], bodies = [], headers = [];
  const server = createServer((request, response) => {
    seen.push(request.headers.authorization);
    headers.push(request.headers);
    let text = '';
    request.on('data', (part) => { text += part; }).on('end', () => { bodies.push(text); answer(response); });
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  t.after(() => new Promise((done) => { server.closeAllConnections(); server.close(done); }));
  return {url: `http://127.0.0.1:${server.address().port}`, seen, bodies, headers};
}

const client = (url, more = {}) => new Client({gateway: url, token: 'token', tenant: 'acme', publisher: 'runtime', publicKey, onUnreported: () => {}, ...more});

const reply = (status, headers, body) => (response) => response.writeHead(status, headers).end(body);
const said = (decision, reason = '') => JSON.stringify({event_id: 'x', decision, reason});
const ALLOW = {'Countersign-Verdict': 'allow'};

async function refused(gate, reason) {
  const tool = gate.guard('t', () => assert.fail('it ran'), {session: 's'});
  await assert.rejects(tool({x: 1}), (e) => e instanceof Refused && e.verdict.reason === reason || assert.fail(`${e}, want ${reason}`));
  assert.equal((await gate.admit(newCall('t', {}, 's'))).allowed, false);
}

const answers = [
  ['no body', reply(500, {}, ''), 'bad_reply'],
  ['an HTTP error', reply(503, {}, '{"error":"unavailable"}'), 'unavailable'],
  ['no JSON', reply(200, ALLOW, 'fine'), 'bad_reply'],
  ['null', reply(200, ALLOW, 'null'), 'bad_reply'],
  ['a list', reply(200, ALLOW, '[]'), 'bad_reply'],
  ['no verdict', reply(200, {}, said('allow')), 'bad_reply'],
  ['a contradiction', reply(200, ALLOW, said('deny')), 'bad_reply'],
  ['an unknown word', reply(200, {'Countersign-Verdict': 'perhaps'}, said('perhaps')), 'bad_reply'],
  ['no receipt', reply(200, ALLOW, said('allow')), 'receipt_missing'],
  ['a bad receipt', reply(200, {...ALLOW, 'Countersign-Receipt': 'a.b.c'}, said('allow')), 'receipt_malformed'],
  ['a denial', reply(200, {'Countersign-Verdict': 'deny'}, said('deny', 'too risky')), 'too risky'],
  ['an ask', reply(200, {'Countersign-Verdict': 'ask'}, said('ask', 'later')), 'later'],
  ['a long answer', reply(200, ALLOW, ' '.repeat((4 << 20) + 1)), 'bad_reply'],
  ['a cut connection', (response) => response.destroy(), 'not_reachable'],
  ['half a body', (response) => { response.writeHead(500, {'Content-Length': 9}).write(' '); response.destroy(); }, 'not_reachable'],
];

for (const [name, answer, reason] of answers) {
  test(name, async (t) => refused(client((await gateway(t, answer)).url), reason));
}

test('silence, and a body that never ends', async (t) => {
  await refused(client((await gateway(t, () => {})).url, {timeout: 300}), 'timeout');
  await refused(client((await gateway(t, (response) => response.writeHead(500).write(' '))).url, {timeout: 300}), 'timeout');
});

test('nobody there', () => refused(client('http://127.0.0.1:1'), 'not_reachable'));

test('a refusal repeats no request', async (t) => {
  for (const answer of [{error: 'Authorization: Bearer token'}, {reason: 'x'.repeat(100)}, {detail: {error: ['token']}}, {detail: 'token'}]) {
    const gate = client((await gateway(t, reply(418, {}, JSON.stringify(answer)))).url);
    await refused(gate, 'http_418');
    await assert.rejects(gate.publish('agenthook', {}), /not stored: http_418$/);
  }
});

test('a wait that is a text, or no number', async (t) => {
  const g = await gateway(t, reply(200, {'Countersign-Verdict': 'ask', 'Countersign-Workflow-Id': 'w1'}, said('ask', 'later')));
  for (const wait of ['10', 'soon', NaN]) assert.equal((await client(g.url).admit(newCall('t', {}, 's'), {wait})).reason, 'later');
  assert.equal(g.seen.length, 3);
});

test('pinned keys that are an empty text pin all', () => {
  const record = JSON.parse(readFileSync(new URL('../../vectors/receipts.json', import.meta.url), 'utf8')).cases.find((c) => c.code === '' || c.ok || c.valid);
  for (const pinned of ['', []]) {
    assert.throws(() => new Keyring(publicKey, pinned).check(record.receipt, record.key, {}), (e) => e.code === 'receipt_key_unknown');
  }
});

test('a token for each request', async (t) => {
  const g = await gateway(t, reply(200, {'Countersign-Verdict': 'deny'}, said('deny', 'no'))), tokens = ['t1', 't2', 'bad\n'];
  const gate = client(g.url, {token: async () => tokens.shift()}), reasons = [];
  for (let n = 0; n < 4; n++) reasons.push((await gate.admit(newCall('t', {}, 's'))).reason);
  assert.deepEqual([reasons, g.seen], [['no', 'no', 'no_token', 'no_token'], ['Bearer t1', 'Bearer t2']]);
  await assert.rejects(gate.publish('agenthook', {}), (e) => e.code === 'no_token' && e.certain);
});

test('a token that does not come ends with the time, or with the signal', async (t) => {
  const g = await gateway(t, reply(200, {'Countersign-Verdict': 'ask', 'Countersign-Workflow-Id': 'w1'}, said('ask', 'later'))), never = () => new Promise(() => {});
  const gate = client(g.url, {token: never, timeout: 300});
  await refused(gate, 'timeout');
  await assert.rejects(gate.publish('agenthook', {}), (e) => e.code === 'timeout' && e.certain);
  const controller = new AbortController(), tokens = [() => 't', () => (setTimeout(() => controller.abort(), 100), never())];
  const waiting = client(g.url, {token: () => tokens.shift()()}).admit(newCall('t', {}, 's'), {wait: 60_000, signal: controller.signal});
  assert.deepEqual([(await waiting).reason, g.seen.length], ['canceled', 1]);
});

test('a call to which a framework gives no id has one', () => {
  for (const none of ['', null, undefined]) assert.match(callOf({session: 's'}, {}, 't', {}, none).callId, /^call-/);
  assert.equal(callOf({session: 's'}, {}, 't', {}, 'c-1').callId, 'c-1');
});

test('a redirect does not carry the token', async (t) => {
  const thief = await gateway(t, reply(200, ALLOW, said('allow')));
  const g = await gateway(t, reply(307, {Location: thief.url}, '{}'));
  await refused(client(g.url), 'http_307');
  assert.deepEqual(thief.seen, []);
});

test('arguments that are no JSON', async (t) => {
  const g = await gateway(t, reply(200, ALLOW, said('allow')));
  const tool = client(g.url).guard('t', () => assert.fail('it ran'), {session: 's'});
  for (const args of [{x: NaN}, {x: 2 ** 60}, {x: undefined}, {x: new Date()}, undefined]) await assert.rejects(tool(args), Refused);
  assert.deepEqual(g.seen, []);
});

const accepted = JSON.stringify({recommended_action: 'accept', execution_policy: {execution_allowed: true}});
const aana = [
  ['no verdict', reply(200, {}, accepted), 'bad_reply'],
  ['a contradiction', reply(200, {'Countersign-Verdict': 'deny'}, accepted), 'bad_reply'],
  ['an accept that allows nothing', reply(200, ALLOW, JSON.stringify({recommended_action: 'accept', execution_policy: {execution_allowed: false}})), 'bad_reply'],
  ['an unknown word', reply(200, {'Countersign-Verdict': 'constructor'}, JSON.stringify({recommended_action: 'constructor'})), 'bad_reply'],
  ['no receipt', reply(200, ALLOW, accepted), 'receipt_missing'],
  ['a bad receipt', reply(200, {...ALLOW, 'Countersign-Receipt': 'a.b.c'}, accepted), 'receipt_malformed'],
  ['an outage', reply(503, {}, '{"detail":{"error":"unavailable"}}'), 'unavailable'],
  ['a cut connection', (response) => response.destroy(), 'not_reachable'],
];

for (const [name, answer, reason] of aana) {
  test(`AANA: ${name}`, async (t) => {
    const gate = client((await gateway(t, answer)).url);
    const event = toolPrecheckEvent({tool_name: 't'});
    const check = await checkToolPrecheck(gate, event, {session: 's'});
    assert.equal(check.verdict.reason, reason);
    assert.equal(check.reply, null);
    assert.equal(shouldExecuteTool(check), false);
    await assert.rejects(executeToolIfAllowed(gate, event, () => assert.fail('it ran'), {session: 's'}), Refused);
  });
}

test('AANA: what a header cannot carry, and an event that is none', async () => {
  const gate = client('http://127.0.0.1:1');
  for (const session of ['', ' s', 's\n', 'sé', undefined]) {
    assert.equal((await checkToolPrecheck(gate, toolPrecheckEvent({tool_name: 't'}), {session})).verdict.reason, 'bad_arguments');
  }
  for (const event of [undefined, null, 5]) assert.equal(shouldExecuteTool(await checkToolPrecheck(gate, event, {session: 's'})), false);
  for (const check of [undefined, {}, {verdict: {allowed: true}}, {verdict: {allowed: 'yes'}, reply: {execution_policy: {execution_allowed: true}}}]) assert.equal(shouldExecuteTool(check), false);
});

test('a signal ends the waiting', async (t) => {
  const g = await gateway(t, reply(200, {'Countersign-Verdict': 'ask', 'Countersign-Workflow-Id': 'w1'}, said('ask', 'later')));
  const signal = AbortSignal.abort();
  await assert.rejects(client(g.url).run(newCall('t', {}, 's'), () => assert.fail('it ran'), {signal}), (e) => e.verdict.reason === 'canceled');
  assert.equal(g.seen.length, 1); // the report alone
  const stop = new AbortController();
  const waiting = client(g.url).admit(newCall('t', {}, 's'), {wait: 3600_000, signal: stop.signal});
  stop.abort();
  assert.equal((await waiting).reason, 'canceled');
});

test('a signal of guard ends the waiting, too', async (t) => {
  const g = await gateway(t, reply(200, {'Countersign-Verdict': 'ask', 'Countersign-Workflow-Id': 'w1'}, said('ask', 'later')));
  const stop = new AbortController();
  const running = client(g.url).guard('t', () => assert.fail('it ran'), {session: 's', wait: 3600_000, signal: stop.signal})({});
  stop.abort();
  await assert.rejects(running, (e) => e.verdict.reason === 'canceled');
});

test('an identical call names the workflow of the one before, until there is another decision', async (t) => {
  const ask = reply(200, {'Countersign-Verdict': 'ask', 'Countersign-Workflow-Id': 'w1', 'Countersign-Decision-Id': 'd1'}, said('ask', 'later'));
  const denied = reply(200, {'Countersign-Verdict': 'deny', 'Countersign-Decision-Id': 'd2'}, said('deny', 'no'));
  const reported = reply(200, {}, '{}'), away = reply(503, {}, '{"error":"unavailable"}');
  const last = () => newCall('t', {b: 2, a: 1}, 's', undefined, {agent: 'a'});
  async function named(call, ...answers) {
    const queue = answers.flatMap((answer) => [answer, reported]), g = await gateway(t, (response) => queue.shift()(response)), gate = client(g.url);
    let text;
    for (const asked of [...Array(answers.length - 1).fill(call), last()]) {
      await assert.rejects(gate.run(asked, () => assert.fail('it ran')), (e) => (text = e.message, e instanceof Refused));
    }
    return [g.headers.filter((_, n) => n % 2 === 0).map((headers) => headers['countersign-workflow-id'] ?? ''), text];
  }
  const [workflows, text] = await named(newCall('t', {a: 1, b: 2}, 's', undefined, {agent: 'a'}), ask, away, ask, denied, ask);
  assert.deepEqual(workflows, ['', 'w1', 'w1', 'w1', '']);
  assert.equal(text, 'ask: later (workflow w1). Do not try another way; repeat the identical call once it is approved.');
  for (const change of [{session: 's2'}, {agent: ''}, {tool: 'u'}, {arguments: {a: 1}}]) assert.deepEqual((await named({...last(), ...change}, ask, ask))[0], ['', ''], JSON.stringify(change));
});

test('workflows are forgotten in their order', async () => {
  const named = [];
  const headers = new Headers({'Countersign-Verdict': 'ask', 'Countersign-Workflow-Id': 'w1'});
  const admit = async (protocol, body, more) => (named.push(more['Countersign-Workflow-Id']), {status: 200, headers, text: said('ask', 'later')});
  const gate = new Client({tenant: 'acme', publisher: 'runtime', publicKey, transport: {admit, publish: async () => {}}});
  for (const n of [...Array(1001).keys(), 1, 0]) await assert.rejects(gate.run(newCall('t', {n}, 's'), () => assert.fail('it ran')), Refused);
  assert.deepEqual(named.slice(-2), ['w1', undefined]);
});

test('a defer is not waited for', async (t) => {
  const g = await gateway(t, reply(200, {'Countersign-Verdict': 'defer', 'Countersign-Workflow-Id': 'w1'}, said('ask', 'later')));
  const verdict = await client(g.url).admit(newCall('t', {}, 's'), {wait: 3600_000});
  assert.deepEqual([verdict.decision, verdict.reason, verdict.workflow, g.seen.length], ['defer', 'later', 'w1', 1]);
});

test('a call that is too large to be reported is refused, and that is on record', async (t) => {
  const g = await gateway(t, reply(200, {}, '{}'));
  await assert.rejects(client(g.url).run(newCall('t', {text: 'x'.repeat(1 << 20)}, 's'), () => assert.fail('it ran')), (e) => e.verdict.reason === 'request_too_large');
  assert.deepEqual(g.bodies.map((text) => JSON.parse(text)[0].event_type), ['ToolUseBlocked']);
  await assert.rejects(client(g.url).publish('agenthook', {text: 'x'.repeat(1 << 20)}), (e) => e instanceof NotStored && e.certain && e.code === 'request_too_large');
});

test('a request that is nested too deeply', async () => {
  let deep = {};
  for (let n = 0; n < 100_000; n++) deep = {deep};
  const {verdict} = await client('http://127.0.0.1:1').admitNative('tool', deep, newCall('t', {}, 's'));
  assert.equal(verdict.reason, 'bad_arguments');
});

test('what is not stored', async (t) => {
  for (const [answer, code, certain, failed] of [
    [reply(429, {}, '{"error":"rate_limited"}'), 'rate_limited', true, undefined],
    [reply(429, {}, '{"error":"rate_limited","failed":[1]}'), 'rate_limited', true, [1]],
    [reply(503, {}, '{"error":"not_stored","failed":"all"}'), 'not_stored', true, undefined],
    [reply(504, {}, '{"error":"in_doubt","failed":[0,2]}'), 'in_doubt', false, [0, 2]],
    [reply(502, {}, '<html>'), 'http_502', false, undefined],
    [(response) => response.destroy(), 'not_reachable', false, undefined],
  ]) {
    const {url} = await gateway(t, answer);
    await assert.rejects(client(url).publish('agenthook', {}), (e) => {
      assert.deepEqual([e.constructor, e.code, e.certain, e.failed], [NotStored, code, certain, failed]);
      assert.equal(e.message, `the events are not ${certain ? '' : 'certainly '}stored: ${code}`);
      return true;
    });
  }
  const gone = createServer();
  await new Promise((done) => gone.listen(0, '127.0.0.1', done));
  const {port} = gone.address();
  await new Promise((done) => gone.close(done));
  await assert.rejects(client(`http://127.0.0.1:${port}`).publish('agenthook', {}), (e) => e.code === 'not_reachable' && e.certain);
});

const vectors = JSON.parse(readFileSync(new URL('../../vectors/replies.json', import.meta.url), 'utf8'));

const TRACE = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

/** Runs a call under the allow of a vector, and reports it to a gateway. The receipt of a vector counts once. */
async function runAllowed(t, protocol, more, answer, tool = () => 'done') {
  const told = [], c = vectors.cases.find(({name}) => name === protocol + ': allow');
  t.mock.timers.enable({apis: ['Date'], now: Date.parse(c.now)});
  const {status, headers, body} = vectors.answers[c.answer].http;
  const g = await gateway(t, answer), http = new HTTP(g.url, 'token');
  const transport = {admit: async () => ({status, headers: new Headers({...headers, ...more}), text: body}), publish: (...events) => http.publish(...events)};
  const gate = new Client({tenant: vectors.tenant, publisher: vectors.publisher, publicKey: vectors.public_key, transport, onUnreported: (text) => told.push(text)});
  const call = newCall(c.call.tool, JSON.parse(c.call.arguments), c.call.session, c.call.tool_call_id, {agent: 'billing', traceparent: TRACE});
  const error = await (protocol === 'agenthook' ? gate.run(call, tool) : gate.runNative(protocol, {}, call, tool)).then((result) => assert.equal(result, 'done'), (e) => e);
  return {error, told, call, reports: g.bodies.map((text) => JSON.parse(text)[0])};
}

test('a report has the arguments once, and names the approval', async (t) => {
  const more = {'Countersign-Workflow-Id': 'w1', 'Countersign-Decision-Id': 'd1'};
  const {call, reports: [report]} = await runAllowed(t, 'agenthook', more, reply(200, {}, '{}'));
  assert.deepEqual([report.event_type, report.tool_input, report.metadata.tool_input_executed], ['PostToolUse', undefined, call.arguments]);
  assert.deepEqual([report.agent_id, report.metadata.traceparent], ['billing', TRACE]);
  assert.deepEqual(report.metadata.approval, {required: true, status: 'approved', workflow_id: 'w1', decision_ref: 'd1'});
});

test('a guard of many sessions takes session and agent of each call from its context', async (t) => {
  const g = await gateway(t, reply(200, {'Countersign-Verdict': 'deny'}, said('deny', 'no'))), context = new AsyncLocalStorage();
  const tool = client(g.url).guard('t', () => assert.fail('it ran'), {session: () => context.getStore().session, agent: () => context.getStore().agent});
  const origins = [{session: 's1'}, {session: 's2', agent: 'billing'}];
  for (const origin of origins) await assert.rejects(context.run(origin, () => tool({})), Refused);
  const proposed = g.bodies.map((text) => JSON.parse(text)).filter((event) => event.event_type === 'PreToolUse');
  assert.deepEqual(proposed.map((event) => [event.session_id, event.agent_id]), [['s1', undefined], ['s2', 'billing']]);
  await assert.rejects(tool({}), TypeError);
});

test('a generator, which would run after the guard has ended, is refused', async (t) => {
  const gate = client('http://127.0.0.1:1');
  for (const tool of [function* () {}, async function* () {}]) await assert.rejects(gate.guard('t', tool, {session: 's'})({}), TypeError);
  const {error, reports: [report]} = await runAllowed(t, 'aump', {}, reply(200, {}, '{}'), () => (async function* () { assert.fail('it ran'); })());
  assert.deepEqual([error?.constructor, report.metadata.execution.outcome], [TypeError, 'failed']);
});

test('a request in another protocol names the agent and the trace', async (t) => {
  const g = await gateway(t, reply(200, ALLOW, '{"decision":"allow"}'));
  await client(g.url).admitNative('tool', {}, newCall('t', {}, 's', undefined, {agent: 'billing', traceparent: TRACE}));
  assert.deepEqual([g.headers[0]['countersign-agent'], g.headers[0].traceparent], ['billing', TRACE]);
  const {verdict} = await client(g.url).admitNative('tool', {}, newCall('t', {}, 's', undefined, {agent: 'b\nx: y'}));
  assert.deepEqual([verdict.reason, g.headers.length], ['bad_arguments', 1]);
});

test('reports outlast a restart of the gateway', async (t) => {
  const answers = [(response) => response.destroy(), reply(503, {}, '{"error":"stopping"}'), reply(200, {}, '{}')];
  const {told, reports} = await runAllowed(t, 'aana', {}, (response) => answers.shift()(response));
  assert.deepEqual([told, reports.length, reports[1], reports[2]], [[], 3, reports[0], reports[0]]);
  assert.equal(reports[0].metadata.approval, undefined);
});

test('a report that is refused for good, and one that cannot be stored in time', async (t) => {
  const revoked = await runAllowed(t, 'tool', {}, reply(401, {}, '{"error":"unauthorized"}'));
  assert.deepEqual([revoked.reports.length, revoked.told.length], [1, 1]);
  t.mock.timers.reset();
  const late = await runAllowed(t, 'handoff', {}, (response) => { t.mock.timers.tick(60_000); response.destroy(); });
  assert.deepEqual([late.reports.length, late.told.length], [1, 1]);
});

const about = (decision, reason) => reply(200, {'Countersign-Verdict': decision, 'Countersign-Workflow-Id': 'w1'}, said(decision, reason));

/** Asks a gateway that has the workflow decided at once. It gives these answers, the last one for ever. */
const waitFor = (t, wait, ...answers) => waitUntil(t, wait, ['denied'], answers);

/** Waits for a workflow with these statuses, the last one for ever. */
async function waitUntil(t, wait, statuses, answers) {
  const asks = [], waits = [];
  const server = createServer((request, response) => {
    if (request.method === 'GET') {
      waits.push(request.url);
      response.end(JSON.stringify({workflow_id: 'w1', status: statuses[Math.min(waits.length, statuses.length) - 1]}));
      return;
    }
    const answer = answers[Math.min(asks.length, answers.length - 1)];
    asks.push(request.headers['countersign-workflow-id'] ?? '');
    request.resume().on('end', () => answer(response));
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  t.after(() => new Promise((done) => { server.closeAllConnections(); server.close(done); }));
  const verdict = await client(`http://127.0.0.1:${server.address().port}`).admit(newCall('t', {}, 's'), {wait});
  return {verdict, asks, waits};
}

test('waiting asks for the workflow, and again only once it is decided', async (t) => {
  const {verdict, asks, waits} = await waitFor(t, 3600_000, about('ask', 'later'), about('deny', 'no'));
  assert.deepEqual([verdict.reason, asks, waits], ['no', ['', 'w1'], ['/v1/approvals/w1?wait=30']]);
});

test('waiting outlasts an outage of the log, and a quota', async (t) => {
  for (const reason of ['audit_unavailable', 'quota_exceeded']) {
    const refused = reply(503, {'Countersign-Verdict': 'deny'}, JSON.stringify({decision: 'deny', reason}));
    const {verdict, asks} = await waitFor(t, 3600_000, about('ask', 'later'), refused, about('deny', 'no'));
    assert.deepEqual([verdict.reason, asks], ['no', ['', 'w1', 'w1']]);
  }
});

test('waiting outlasts a restart of the gateway', async (t) => {
  const ask = about('ask', 'later'), away = (response) => response.destroy();
  const {verdict, asks} = await waitFor(t, 3600_000, ask, away, reply(502, {}, '<html>'), about('deny', 'no'));
  assert.deepEqual([verdict.reason, asks], ['no', ['', 'w1', 'w1', 'w1']]);
  const late = (await waitFor(t, 500, ask, away)).verdict;
  assert.deepEqual([late.decision, late.workflow], ['ask', 'w1']);
  const revoked = await waitFor(t, 3600_000, ask, reply(401, {}, '{"error":"unauthorized"}'));
  assert.deepEqual([revoked.verdict.reason, revoked.asks.length], ['unauthorized', 2]);
});

test('the token for this machine goes through no proxy', async (t) => {
  const g = await gateway(t, reply(200, {'Countersign-Verdict': 'deny'}, said('deny', 'no')));
  const undici = Symbol.for('undici.globalDispatcher.1'), before = globalThis[undici]; // where fetch looks for a proxy
  t.after(() => { globalThis[undici] = before; });
  globalThis[undici] = {dispatch: () => { throw new Error('to a proxy'); }};
  await assert.rejects(fetch(g.url), (e) => e.message === 'to a proxy' || e.cause?.message === 'to a proxy');
  assert.equal((await client(g.url).admit(newCall('t', {}, 's'))).reason, 'no');
});

test('an approval whose allow was lost is used up: one more ask would open another workflow', async (t) => {
  const answers = [about('ask', 'later'), (response) => response.destroy(), about('deny', 'no')];
  const {verdict, asks, waits} = await waitUntil(t, 3600_000, ['approved', 'consumed'], answers);
  assert.deepEqual([verdict.decision, verdict.reason, verdict.workflow, asks, waits.length], ['deny', 'approval_used', 'w1', ['', 'w1'], 2]);
});

test('ready files that others read, or that were left behind', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'countersign-'));
  t.after(() => rmSync(folder, {recursive: true}));
  const read = (owner, mode = 0o600) => {
    const path = join(folder, 'ready.json');
    writeFileSync(path, JSON.stringify({gateway_url: 'http://127.0.0.1:1', tenant: 'acme', public_key: publicKey, roles: {runtime: {token: 't', publisher: 'p'}}, owner}));
    chmodSync(path, mode);
    Client.fromReadyFile(path);
  };
  read(null);
  assert.throws(() => read(null, 0o640), /by others/);
  if (!existsSync('/proc/self/ns/pid')) return;
  const child = spawn('sleep', ['60']);
  const started = readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(') ')[1].split(' ')[19];
  const here = {pid: child.pid, started, machine: `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()} ${readlinkSync('/proc/self/ns/pid')}`};
  read(here);
  read({...here, started: '1', machine: 'another'});
  assert.throws(() => read({...here, started: '1'}), /left behind/);
  await new Promise((ended) => { child.on('exit', ended); child.kill(); });
  assert.throws(() => read(here), /left behind/);
});

test('AANA: an event shares nothing with the next one', () => {
  const first = toolPrecheckEvent({tool_name: 't'});
  first.evidence_refs.push({id: 'e1'});
  first.proposed_arguments.to = 'dana';
  const {evidence_refs: evidence, proposed_arguments: args} = toolPrecheckEvent({tool_name: 't'});
  assert.deepEqual([evidence, args], [[], {}]);
});

test('a client without a public key', () => {
  assert.throws(() => client('http://127.0.0.1:1', {publicKey: undefined}), /public key is needed: the text of checkpoint\.pub/);
});

test('addresses', () => {
  for (const url of ['http://gateway.example', 'ftp://127.0.0.1', 'gateway', 'http://127.0.0.1.example']) assert.throws(() => client(url));
});
