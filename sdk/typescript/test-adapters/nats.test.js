// The client over NATS, against a running system, and with a service that fails in every way.

import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import test from 'node:test';
import {connect, headers, NoRespondersError} from '@nats-io/transport-node';
import {Client, newCall, NotStored, Refused} from '@countersign/sdk';
import {checkToolPrecheck, toolPrecheckEvent} from '@countersign/sdk/aana';
import {natsTransport} from '@countersign/sdk/nats';

const ready = JSON.parse(readFileSync(process.env.COUNTERSIGN_READY_FILE, 'utf8'));
const {user, password: pass, inbox_prefix: inboxPrefix, publisher} = ready.roles.runtime;
const who = {tenant: ready.tenant, publisher};
const clientOf = (connection, more) => new Client({transport: natsTransport(connection, who), ...who, publicKey: ready.public_key, onUnreported: () => {}, ...more});

test('a running system', async (t) => {
  const connection = await connect({servers: ready.nats_url, user, pass, inboxPrefix});
  t.after(() => connection.close());
  const unreported = [];
  const gate = clientOf(connection, {onUnreported: (m) => unreported.push(m)});
  const ran = [];
  const guard = (name) => gate.guard(name, ({path}) => ran.push(path), {session: 's-adapter-nats'});
  await guard('allowed_tool')({path: '/a'});
  await assert.rejects(guard('denied_tool')({path: '/b'}), (e) => e instanceof Refused && e.verdict.reason === 'This tool is forbidden.');
  assert.deepEqual(ran, ['/a']);
  const event = toolPrecheckEvent({tool_name: 'look_up_hours', tool_category: 'public_read', risk_domain: 'public_information'});
  assert.equal((await checkToolPrecheck(gate, event, {session: 's-nats aana'})).verdict.allowed, true);
  await assert.rejects(gate.publish('aana', {}));
  await gate.publishIn('s-adapter-nats', 'aump', {id: 'aump_ev_sdk', event_type: 'courier_booked'});
  const changing = newCall('allowed_tool', {path: '/c'}, 's-nats');
  const running = gate.run(changing, () => assert.fail('it ran'));
  changing.arguments.path = '/changed';
  await assert.rejects(running, (e) => e.verdict.reason === 'receipt_other_arguments');
  assert.deepEqual(unreported, []);
  await connection.close();
  assert.equal((await gate.admit(newCall('allowed_tool', {}, 's'))).reason, 'not_reachable');
});

/** A connection whose other side answers in one way. */
const answering = (data, fields = {}) => ({
  async request() {
    const h = headers();
    for (const [name, value] of Object.entries(fields)) h.set(name, value);
    return {headers: h, data: new TextEncoder().encode(data)};
  },
});
const allow = JSON.stringify({decision: 'allow', reason: ''});
const ALLOW = {'Countersign-Verdict': 'allow'};

for (const [name, connection, reason] of [
  ['no headers', {async request() { return {data: new TextEncoder().encode(allow)}; }}, 'bad_reply'],
  ['no verdict', answering(allow), 'bad_reply'],
  ['no JSON', answering('fine', ALLOW), 'bad_reply'],
  ['no receipt', answering(allow, ALLOW), 'receipt_missing'],
  ['a service error', answering('{"reason":"overloaded"}', {...ALLOW, 'Nats-Service-Error-Code': '503'}), 'overloaded'],
  ['a service error of no form', answering(allow, {...ALLOW, 'Nats-Service-Error-Code': 'x'}), 'http_502'],
  ['a service error that says 200', answering(allow, {...ALLOW, 'Nats-Service-Error-Code': '200'}), 'http_502'],
  ['a long answer', answering(' '.repeat((4 << 20) + 1), ALLOW), 'bad_reply'],
]) {
  test(name, async () => {
    const gate = clientOf(connection);
    assert.equal((await gate.admit(newCall('t', {}, 's'))).reason, reason);
    await assert.rejects(gate.run(newCall('t', {}, 's'), () => assert.fail('it ran')), Refused);
  });
}

test('an event that is not certainly stored', async () => {
  for (const ack of ['', 'x', 'null', '{}', '{"stream":"GOV"}', '{"stream":"","seq":1}', '{"stream":"GOV","seq":1,"duplicate":true}']) {
    await assert.rejects(clientOf(answering(ack)).publish('agenthook', {event_type: 'Stop', session_id: 's'}), /not certainly stored/);
  }
  await clientOf(answering('{"stream":"GOV","seq":7}')).publish('agenthook', {event_type: 'Stop', session_id: 's'});
});

test('an event that is refused', async () => {
  for (const [code, want] of [[10054, 'request_too_large'], [10991, 'rate_limited'], [10992, 'forbidden'], [10008, 'not_stored']]) {
    const refusing = answering(JSON.stringify({error: {code: 400, err_code: code}, stream: 'GOV', seq: 1}));
    await assert.rejects(clientOf(refusing).publish('agenthook', {}), (e) => e instanceof NotStored && e.code === want && e.certain && e.failed === undefined);
  }
});

test('of several events those before the one that failed are stored', async () => {
  const answers = [answering('{"stream":"GOV","seq":7}'), answering('{"error":{"code":400,"err_code":10992}}')];
  const connection = {request: (...args) => answers.shift().request(...args)};
  await assert.rejects(clientOf(connection).publish('agenthook', {}, {}, {}), (e) => e.code === 'forbidden' && assert.deepEqual(e.failed, [1, 2]) === undefined);
  assert.deepEqual(answers, []);
});

test('the report of a call that is refused for good is sent once', async (t) => {
  const connection = await connect({servers: ready.nats_url, user, pass, inboxPrefix}), reports = [];
  t.after(() => connection.close());
  const request = (subject, ...rest) => subject.includes('.events.') ? (reports.push(subject), answering('{"error":{"code":400,"err_code":10992}}').request()) : connection.request(subject, ...rest);
  await clientOf({request}).run(newCall('allowed_tool', {path: '/d'}, 's-nats-unreported'), () => {});
  assert.equal(reports.length, 1);
});

test('the subject of an event', async () => {
  for (const [protocol, event, want] of [
    ['agenthook', {session_id: 's1', event_type: 'Stop'}, 's1.Stop'],
    ['agenthook', {session_id: 'a.b *', event_type: 'Stop'}, '~YS5iICo.Stop'],
    ['agenthook', {session_id: 's1', event_type: 'request'}, 's1.unknown'],
    ['aaep', {session_id: 's9', type: 'aaep:agent.tool.invoked'}, 's9.agent.tool.invoked'],
    ['aump', {session_id: 's1', event_type: 'deal_accepted'}, 's-named.deal_accepted'],
    ['aump', {}, 's-named.unknown'],
  ]) {
    let subject;
    const stored = answering('{"stream":"GOV","seq":7}');
    await clientOf({request: (to) => ((subject = to), stored.request())}).publishIn('s-named', protocol, event);
    assert.equal(subject, `gov.events.${who.tenant}.${publisher}.${protocol}.${want}`);
  }
});

test('what is missing', () => assert.throws(() => natsTransport({}, {tenant: 'acme'}), TypeError));

test('nobody answers', async (t) => {
  const connection = await connect({servers: ready.nats_url, user, pass, inboxPrefix});
  t.after(() => connection.close());
  const transport = natsTransport(connection, {...who, prefix: 'elsewhere'});
  const gate = new Client({transport, ...who, publicKey: ready.public_key, timeout: 300, onUnreported: () => {}});
  assert.match((await gate.admit(newCall('t', {}, 's'))).reason, /^(unavailable|timeout|not_reachable)$/);
  const nobody = clientOf({request: async () => { throw new NoRespondersError('x'); }});
  await assert.rejects(nobody.publish('agenthook', {}), (e) => e.code === 'unavailable' && e.certain);
});
