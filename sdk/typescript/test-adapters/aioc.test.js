// The matrix of RFC-0002, seven cases, in aioc's own runtime, with its run records.

import assert from 'node:assert/strict';
import {createServer} from 'node:http';
import test from 'node:test';
import * as aioc from '@axiastudio/aioc';
import {Client} from '@countersign/sdk';
import {handoffPolicy, toolPolicy} from '@countersign/sdk/aioc';
import {away, system} from './cases.js';

const {Agent, run, tool} = aioc;
const ready = process.env.COUNTERSIGN_READY_FILE;

/** A model that makes one call and then ends. */
const scripted = (name, args) => {
  let turn = 0;
  return {
    async *stream() {
      if (turn++ === 0) yield {type: 'tool_call', callId: 'call-1', name, arguments: JSON.stringify(args)};
      else yield {type: 'completed', message: 'done'};
    },
  };
};

/** Runs an agent that calls a tool or hands over; returns aioc's record, and what ran. */
async function record(name, args, policies) {
  const ran = [];
  const target = new Agent({name: name === 'handoff_to_denied_agent' ? 'Denied Agent' : 'Target Agent', model: 'scripted'});
  const tools = ['allowed_tool', 'denied_tool', 'asked_tool'].map((t) => tool({name: t, description: t, parameters: anything, execute: (input) => { ran.push(input); return 'read'; }}));
  const agent = new Agent({name: 'Source Agent', model: 'scripted', tools, handoffs: [target]});
  aioc.setDefaultProvider(scripted(name, args));
  let kept;
  const failed = await run(agent, 'Do as you are told.', {policies, record: {sink: (r) => { kept = r; }}}).then(() => undefined, (e) => e);
  return {record: kept, ran, failed};
}

const anything = {parse: (v) => v};
const policies = (gate, more = {}) => {
  const options = {session: 's-aioc', ...more};
  return {toolPolicy: toolPolicy(gate, options), handoffPolicy: handoffPolicy(gate, options)};
};

/** A gateway of one answer. */
async function gateway(t, answer) {
  const server = createServer((request, response) => request.resume().on('end', () => answer(response)));
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  t.after(() => new Promise((done) => { server.closeAllConnections(); server.close(done); }));
  return Client.fromReadyFile(ready, {gateway: `http://127.0.0.1:${server.address().port}`});
}
const says = (verdict, body) => (response) => response.writeHead(200, {'Countersign-Verdict': verdict}).end(JSON.stringify(body));

async function decided(found, decision, reason, completed, ran) {
  const {record: r, ran: executed, failed} = await found;
  assert.equal(r.policyDecisions.length, 1);
  const [d] = r.policyDecisions;
  assert.equal(d.decision, decision);
  assert.equal(d.reason, reason);
  assert.equal(r.status, completed ? 'completed' : 'failed', failed);
  assert.deepEqual(executed, ran);
  return {d, r};
}

test('1: a tool is allowed', async () => {
  const {d} = await decided(record('allowed_tool', {path: '/a'}, policies(system)), 'allow', 'harmless', true, [{path: '/a'}]);
  assert.match(d.policyVersion, /^gates/);
  assert.equal(d.metadata.verdict, 'allow');
});

test('the record names the call as it was admitted, for the report of what ran', async () => {
  const asked = [];
  const watched = {admitNative: (protocol, request, call, options) => (asked.push(call), system.admitNative(protocol, request, call, options))};
  for (const [name, reason] of [['allowed_tool', 'harmless'], ['handoff_to_target_agent', 'harmless']]) {
    const {d} = await decided(record(name, {why: 'x'}, policies(watched)), 'allow', reason, true, name === 'allowed_tool' ? [{why: 'x'}] : []);
    const {session, callId} = asked.pop();
    assert.deepEqual([d.metadata.session, d.metadata.callId], [session, callId]);
    assert.ok(d.metadata.decisionId);
  }
});

test('2: a tool is denied', async () => {
  const {d} = await decided(record('denied_tool', {path: '/a'}, policies(system)), 'deny', 'forbidden_tool', false, []);
  assert.equal(d.publicReason, 'This tool is forbidden.');
  assert.equal(d.resultMode, 'throw');
});

test('3: there is no policy', async () => {
  await decided(record('allowed_tool', {path: '/a'}, undefined), 'deny', 'policy_not_configured', false, []);
});

test('4: a handoff is allowed', async () => {
  const {d, r} = await decided(record('handoff_to_target_agent', {why: 'x'}, policies(system)), 'allow', 'harmless', true, []);
  assert.deepEqual([d.resource.kind, d.resource.name, r.agentName], ['handoff', 'Target Agent', 'Target Agent']);
});

test('5: a handoff is denied', async () => {
  const {r} = await decided(record('handoff_to_denied_agent', {}, policies(system)), 'deny', 'deny_unconfigured_handoff_Denied Agent', false, []);
  assert.equal(r.agentName, 'Source Agent');
});

test('6: a policy fails: the gateway is away, or does not answer in time', async (t) => {
  const {d} = await decided(record('allowed_tool', {path: '/a'}, policies(away)), 'deny', 'policy_error', false, []);
  assert.equal(d.metadata.errorMessage, 'not_reachable');
  const silent = policies(await gateway(t, () => {}), {timeout: 100});
  for (const name of ['allowed_tool', 'handoff_to_target_agent']) {
    const {d: late} = await decided(record(name, {}, silent), 'deny', 'policy_error', false, []);
    assert.equal(late.metadata.errorMessage, 'timeout');
  }
});

test('7: an answer is no policy result', async (t) => {
  for (const answer of [says('allow', {decision: 'perhaps', reason: 'x'}), says('deny', {decision: 'allow', reason: 'x'}), says('allow', 'x')]) {
    await decided(record('allowed_tool', {path: '/a'}, policies(await gateway(t, answer))), 'deny', 'invalid_policy_result', false, []);
  }
});

test('an allow without a valid receipt is none', async (t) => {
  const forged = policies(await gateway(t, says('allow', {decision: 'allow', reason: 'x'})));
  await decided(record('allowed_tool', {path: '/a'}, forged), 'deny', 'receipt_missing', false, []);
});

test('arguments that change after the admission are refused', async () => {
  const hasty = {
    admitNative(protocol, request, call, options) {
      const answer = system.admitNative(protocol, request, call, options);
      call.arguments.path = '/changed';
      return answer;
    },
  };
  await decided(record('allowed_tool', {path: '/a'}, policies(hasty)), 'deny', 'receipt_other_arguments', false, []);
});

test('a person is asked; the same proposal runs once after the approval', async () => {
  const {execFileSync} = await import('node:child_process');
  const asking = policies(system);
  const {r, d} = await decided(record('asked_tool', {path: '/p'}, asking), 'require_approval', 'needs_a_person', false, []);
  assert.equal(r.suspendedProposals.length, 1);
  execFileSync(process.env.COUNTERSIGN, ['approvals', 'approve', d.metadata.approval.workflowId, '--yes'], {stdio: 'pipe'});
  await decided(record('asked_tool', {path: '/p'}, asking), 'allow', 'approval_granted', true, [{path: '/p'}]);
  await decided(record('asked_tool', {path: '/p'}, asking), 'require_approval', 'needs_a_person', false, []);
});
