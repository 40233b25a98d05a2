// Against a running system: COUNTERSIGN_READY_FILE names its ready file. Its policies are those of
// test/sdk_test.go.

import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {readFileSync} from 'node:fs';
import test from 'node:test';
import {fileURLToPath} from 'node:url';
import {checkToolPrecheck, executeToolIfAllowed, shouldExecuteTool, toolPrecheckEvent} from '../aana.js';
import {Client, newCall, Refused} from '../index.js';

const {COUNTERSIGN_READY_FILE: ready, COUNTERSIGN: program, COUNTERSIGN_TEST_SESSION: session = 's-typescript'} = process.env;

test('a running system', {skip: !ready && 'COUNTERSIGN_READY_FILE names no ready file'}, async (t) => {
  const gate = Client.fromReadyFile(ready);
  const ran = [];
  const guard = (name, wait = 0) => gate.guard(name, ({path}) => ran.push(path), {session, wait});

  await t.test('guarded tools', async () => {
    await guard('allowed_tool')({path: '/a'});
    await assert.rejects(guard('denied_tool')({path: '/b'}), (e) => e instanceof Refused && e.verdict.reason === 'This tool is forbidden.');
    await assert.rejects(guard('asked_tool', 500)({path: '/c'}), (e) => e instanceof Refused && e.verdict.decision === 'ask' && e.verdict.workflow !== '');
    assert.deepEqual(ran, ['/a']);
  });

  await t.test('policies see the agent', async () => {
    for (const [agent, allowed] of [['billing', true], ['', false]]) {
      assert.equal((await gate.admit(newCall('agent_tool', {}, session + '-agent', undefined, {agent}))).allowed, allowed);
    }
  });

  await t.test('a large call is reported', () => gate.run(newCall('allowed_tool', {path: '/f', text: '<'.repeat(900_000)}, session), () => {}));

  await t.test('an approved call runs once', async () => {
    const call = newCall('asked_tool', {path: '/d'}, session);
    const asked = await gate.admit(call);
    assert.equal(asked.decision, 'ask');
    execFileSync(program, ['approvals', 'approve', asked.workflow, '--yes'], {stdio: 'pipe'});
    assert.equal(await gate.run(call, ({path}) => path, {wait: 10_000}), '/d');
    await assert.rejects(gate.run(call, () => assert.fail('an approval was used twice')), Refused);
  });

  await t.test('an approval that comes later is for the identical call', async () => {
    const done = [], tool = gate.guard('asked_tool', ({path}) => done.push(path), {session: session + '-later'});
    const refused = () => tool({path: '/h'}).then(() => assert.fail('it ran'), (e) => e.verdict.workflow);
    const waiting = await refused();
    assert.equal(await refused(), waiting);
    execFileSync(program, ['approvals', 'approve', waiting, '--yes'], {stdio: 'pipe'});
    await tool({path: '/h'});
    assert.notEqual(await refused(), waiting);
    assert.deepEqual(done, ['/h']);
  });

  await t.test('a failing tool is reported', async () => {
    await assert.rejects(gate.run(newCall('allowed_tool', {path: '/e'}, session), () => { throw new RangeError('no'); }), RangeError);
  });

  await t.test('AANA', async () => {
    const event = toolPrecheckEvent({tool_name: 'look_up_hours', tool_category: 'public_read', risk_domain: 'public_information', proposed_arguments: {shop: 'north'}});
    const options = {session: session + '-aana'};
    assert.equal(await executeToolIfAllowed(gate, event, ({shop}) => shop, options), 'north');
    const check = await checkToolPrecheck(gate, event, options);
    assert.equal(shouldExecuteTool(check), true);
    assert.equal(check.reply.route, 'accept');
    for (const more of [{recommended_route: 'refuse'}, {tool_category: 'unknown'}, {tool_category: 'nonsense'}, {proposed_arguments: {n: NaN}}]) {
      assert.equal(shouldExecuteTool(await checkToolPrecheck(gate, {...event, ...more}, options)), false);
      await assert.rejects(executeToolIfAllowed(gate, {...event, ...more}, () => assert.fail('it ran'), options), Refused);
    }
    const changing = {...event, proposed_arguments: {shop: 'south'}};
    const running = executeToolIfAllowed(gate, changing, () => assert.fail('it ran'), options);
    changing.proposed_arguments.shop = 'north';
    await assert.rejects(running, (e) => e.verdict.reason === 'receipt_other_arguments');
    assert.throws(() => toolPrecheckEvent({}), TypeError);
  });

  await t.test('AUMP', async () => {
    const example = (path) => fileURLToPath(new URL('../../../examples/' + path, import.meta.url));
    execFileSync(program, ['mandate', 'put', example('mandates/courier.json')], {stdio: 'pipe'});
    const request = JSON.parse(readFileSync(example('requests/aump-action.json'), 'utf8'));
    const named = session + '-aump';
    const evaluate = (action, callId) => gate.admitNative('aump', {...request, proposed_action: action}, {tool: action.type, arguments: action, session: named, callId});
    const action = request.proposed_action;
    let checked = await evaluate(action, 'c-parcel');
    for (const end = Date.now() + 30_000; checked.verdict.reason === 'mandate_not_found' && Date.now() < end;) checked = await evaluate(action, 'c-parcel'); // until the admitter has it
    assert.deepEqual([checked.verdict.allowed, checked.reply?.decision], [true, 'allowed'], checked.verdict.reason);
    const denied = await evaluate({...action, amount: {currency: 'EUR', total_minor: 17_001}}, 'c-dear'); // 3,000 of 20,000 are reserved
    assert.deepEqual([denied.verdict.decision, denied.reply.decision], ['deny', 'denied']);
    assert.ok(denied.reply.reason_codes.includes('price_above_budget'));
    const event = {
      aump: {version: '0.1.0', type: 'evidence_event'}, id: 'aump_ev_sdk', mandate_ref: request.mandate_ref, sequence: 1, created_at: new Date().toISOString(),
      event_type: 'courier_booked', summary: 'Booked.', result: 'allowed', actor: {role: 'runtime', id: 'rt-1'}, privacy: {retention: 'hashes', contains_private_fields: false},
    };
    await gate.publishIn(named, 'aump', event);
    for (const wrong of ['', 's\nX: y', ' s', 'sé', undefined]) await assert.rejects(gate.publishIn(wrong, 'aump', event), TypeError);
  });

  await t.test('events', async () => {
    await gate.publish('agenthook', {schema_version: 1, event_id: newCall('', {}, '').eventId, event_type: 'SessionStart', timestamp: '2026-11-25T12:00:00Z', source: 'test', session_id: session});
    await assert.rejects(gate.publish('no-such-protocol', {}));
  });
});
