// Ask Countersign before a tool runs, run it only under a valid receipt, and report what ran.
// index.d.ts describes what is exported. Everything fails closed.

import {createHash, randomUUID} from 'node:crypto';
import {setTimeout as sleep} from 'node:timers/promises';
import {types} from 'node:util';
import {canonical, NotCanonical} from './canonical.js';
import {BadReceipt, Keyring, useUntil} from './receipt.js';
import {readReadyFile} from './ready.js';
import {errorCode, Failure, HTTP, MAX_BODY} from './transport.js';

export {BadReceipt, canonical, Keyring, NotCanonical};

const HEADER_TEXT = /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/; // what a header carries unchanged
const MAX_REASON = 2000; // characters of a policy's message
const DECISIONS = ['allow', 'ask', 'defer', 'deny'];
const WORKFLOW = /^[A-Za-z0-9_-]{1,128}$/;
const NO_GENERATOR = 'only functions that give a result can be guarded: a generator would run after the guard has ended';
const SETTLED = ['approved', 'denied', 'expired', 'cancelled', 'consumed']; // statuses of a workflow that is not pending
// Codes of requests without a decision that may have one later.
const OUTAGES = [
  'not_reachable', 'timeout', 'bad_reply', 'audit_unavailable', 'overloaded', 'quota_exceeded', 'rate_limited', 'stopping', 'unavailable',
  'http_502', 'http_503', 'http_504', 'no_token',
];
const LATER = [...OUTAGES, 'in_doubt', 'not_stored']; // codes of reports that may be stored later; an event that is stored twice counts once
const REPORT_TIME = 15_000; // for which the report of a call that ran is tried again
const MAX_REQUEST = MAX_BODY - (4 << 10); // of an admission, in bytes: the report of the call adds how it ended
const LONGEST_WAIT = 30_000; // that the gateway lets one request wait for a workflow
const WAITING_LIMIT = 1000; // calls that a client remembers until a person has decided

/** A guarded call that did not run, not even in part. */
export class Refused extends Error {
  constructor(verdict, callId) {
    const {decision, reason, workflow} = verdict;
    const next = decision === 'ask' ? '. Do not try another way; repeat the identical call once it is approved.' : '';
    super(`${decision}: ${reason}` + (workflow ? ` (workflow ${workflow})${next}` : ''));
    this.verdict = verdict;
    this.callId = callId;
  }
}

/** Events that are not, or not certainly, on record. */
export class NotStored extends Error {
  constructor(code, certain, failed, options) {
    super(`the events are not ${certain ? '' : 'certainly '}stored: ${code}`, options);
    this.code = code;
    this.certain = certain;
    this.failed = failed;
  }
}

function verdictOf(decision, reason, more = {}) {
  return Object.freeze({decision, reason, allowed: decision === 'allow', workflow: '', decisionId: '', nonce: '', until: 0, ...more});
}

/** Makes a call. run copies its arguments, so that what was admitted is what runs. */
export function newCall(tool, args, session, callId = 'call-' + randomUUID(), {agent = '', traceparent = ''} = {}) {
  return Object.freeze({tool, arguments: args, session, callId, eventId: randomUUID(), agent, traceparent});
}

export class Client {
  #transport;
  #tenant;
  #publisher;
  #timeout;
  #keys;
  #onUnreported;
  #waiting = new Map(); // the workflows for which calls were refused, by what the calls are

  constructor({gateway, token, transport, tenant, publisher, publicKey, pinnedKeys, records, timeout = 10_000, onUnreported = console.error}) {
    this.#transport = transport ?? new HTTP(gateway, token);
    if (!tenant || !publisher) throw new TypeError('tenant and publisher are needed');
    this.#tenant = tenant;
    this.#publisher = publisher;
    this.#timeout = timeout;
    this.#keys = new Keyring(publicKey, pinnedKeys, records);
    this.#onUnreported = onUnreported;
  }

  static fromReadyFile(path, options = {}) {
    const ready = readReadyFile(path);
    const {token, publisher} = ready.roles.runtime;
    return new Client({gateway: ready.gateway_url, token, tenant: ready.tenant, publisher, publicKey: ready.public_key, ...options});
  }

  async admit(call, options) {
    if (options?.workflow && !WORKFLOW.test(options.workflow)) return verdictOf('deny', 'bad_arguments');
    let body;
    try {
      body = canonical(this.#event(call, 'PreToolUse', {}, {tool_input: call.arguments, evidence_phase: 'pre_commit'}));
    } catch {
      return verdictOf('deny', 'bad_arguments');
    }
    return this.#wait((workflow) => this.#ask(call, body, workflow), options);
  }

  /** Asks, and as long as the verdict is ask and there is time, asks again. The workflow of an earlier ask may be over: then another one is opened. */
  async #wait(ask, options) {
    const end = Date.now() + Number(options?.wait ?? 0);
    let workflow = '', waiting; // waiting is the latest ask
    for (let pause = 300; ; pause = Math.min(2 * pause, 2000)) {
      if (options?.signal?.aborted) return verdictOf('deny', 'canceled', {workflow});
      let verdict = await ask(workflow || options?.workflow);
      if (workflow && !verdict.decisionId && OUTAGES.includes(verdict.reason)) verdict = waiting; // the call waits on, whether the gateway restarts or not
      if (verdict.decision !== 'ask' || !verdict.workflow) return verdict;
      if (workflow && verdict.workflow !== workflow) return verdictOf('deny', 'approval_expired', {workflow, decisionId: verdict.decisionId});
      if (!(Date.now() + pause <= end)) return verdict; // also if wait is no number
      const begun = Date.now(), known = workflow !== '';
      waiting = verdict;
      workflow = verdict.workflow;
      const decided = await this.#decided(workflow, Math.floor(Math.min(end - begun, LONGEST_WAIT) / 1000), options?.signal);
      if (decided === 'consumed') return verdictOf('deny', 'approval_used', {workflow}); // by an allow whose answer was lost; one more ask would open a workflow that nobody waits for
      const rest = known || !decided ? begun + pause - Date.now() : 0; // a gateway that answers at once is not asked without a pause
      if (rest > 0) await sleep(rest, undefined, {signal: options?.signal}).catch(() => {}); // the loop looks at the signal
    }
  }

  /** Waits until a workflow is not pending any more and returns its status; nothing if it is when the time is over, or if that cannot be learnt. */
  async #decided(workflow, seconds, signal) {
    if (!(seconds >= 1) || !this.#transport.approval || !WORKFLOW.test(workflow)) return '';
    try {
      const {status, text} = await this.#transport.approval(workflow, seconds, seconds * 1000 + this.#timeout, signal);
      const found = JSON.parse(text).status;
      return status === 200 && SETTLED.includes(found) ? found : '';
    } catch {
      return ''; // the next ask tells
    }
  }

  async #ask(call, body, workflow) {
    try {
      const answer = await this.#request('agenthook', body, workflow ? {'Countersign-Workflow-Id': workflow} : {}, this.#timeout);
      return this.#read(call, answer, ({decision, reason}) => typeof reason === 'string' && decision).verdict;
    } catch (e) {
      return verdictOf('deny', e instanceof Failure ? e.message : 'bad_reply');
    }
  }

  async admitNative(protocol, request, call, options) {
    const optional = {'Countersign-Agent': call.agent, traceparent: call.traceparent, 'Countersign-Workflow-Id': options?.workflow};
    const headers = {'Countersign-Session': call.session, 'Countersign-Tool-Call-Id': call.callId, ...Object.fromEntries(Object.entries(optional).filter(([, text]) => text))};
    if (!Object.values(headers).every((text) => typeof text === 'string' && HEADER_TEXT.test(text))) return {verdict: verdictOf('deny', 'bad_arguments'), reply: null};
    let body;
    try {
      body = canonical(request);
    } catch {
      return {verdict: verdictOf('deny', 'bad_arguments'), reply: null};
    }
    try {
      const answer = await this.#request(protocol, body, headers, options?.timeout ?? this.#timeout);
      return this.#read(call, answer, (reply) => nativeDecision(protocol, reply));
    } catch (e) {
      return {verdict: verdictOf('deny', e instanceof Failure ? e.message : 'bad_reply'), reply: null};
    }
  }

  async #request(protocol, body, headers, timeout) {
    if (Buffer.byteLength(body) > MAX_REQUEST) throw new Failure('request_too_large');
    return this.#transport.admit(protocol, body, headers, timeout);
  }

  /** Reads the verdict of an answer. decide gives the word of the body, which must not contradict the header. */
  #read(call, {status, headers, text}, decide) {
    let reply;
    try {
      reply = JSON.parse(text);
    } catch {
      throw new Failure('bad_reply');
    }
    if (reply === null || typeof reply !== 'object' || Array.isArray(reply)) throw new Failure('bad_reply');
    if (status !== 200) return {verdict: verdictOf('deny', errorCode(status, reply)), reply: null};
    const decision = headers.get('Countersign-Verdict') ?? '';
    if (!DECISIONS.includes(decision) || decide(reply) !== (decision === 'defer' ? 'ask' : decision)) throw new Failure('bad_reply');
    const verdict = this.#verdict(call, decision, reply, headers);
    return {verdict, reply: verdict.allowed || decision !== 'allow' ? reply : null}; // an allow without a valid receipt says nothing
  }

  #verdict(call, decision, reply, headers) {
    const decisionId = headers.get('Countersign-Decision-Id') ?? '', workflow = headers.get('Countersign-Workflow-Id') ?? '';
    if (decision !== 'allow') return verdictOf(decision, reasonOf(reply).slice(0, MAX_REASON), {workflow, decisionId});
    const want = {tenant: this.#tenant, source: this.#publisher, session: call.session, tool_call_id: call.callId, tool: call.tool, arguments: call.arguments};
    try {
      const claims = this.#keys.check(headers.get('Countersign-Receipt') ?? '', headers.get('Countersign-Key') ?? '', want);
      return verdictOf('allow', '', {workflow, decisionId, nonce: String(claims.nonce), until: useUntil(claims)});
    } catch (e) {
      return verdictOf('deny', e instanceof BadReceipt ? e.code : 'bad_reply', {decisionId});
    }
  }

  run(call, tool, options) {
    return this.#run(call, tool, options, (admitted, workflow) => this.admit(admitted, {...options, workflow}));
  }

  runNative(protocol, request, call, tool, options) {
    const ask = async (admitted, workflow) => (await this.admitNative(protocol, request, admitted, {...options, workflow})).verdict;
    return this.#run(call, tool, options, (admitted, workflow) => this.#wait((named) => ask(admitted, named), {...options, workflow}));
  }

  async #run(call, tool, options, admit) {
    if (types.isGeneratorFunction(tool)) throw new TypeError(NO_GENERATOR);
    let admitted, identity;
    try {
      admitted = {...call, arguments: JSON.parse(canonical(call.arguments))};
      identity = createHash('sha256').update(canonical([call.session, call.agent ?? '', call.tool, admitted.arguments])).digest('base64');
    } catch {
      throw new Refused(verdictOf('deny', 'bad_arguments'), call.callId);
    }
    const earlier = options?.workflow || this.#waiting.get(identity);
    this.#waiting.delete(identity); // an approval is for one call
    let verdict = await admit(admitted, earlier);
    if (verdict.decision === 'ask' || !verdict.decisionId) this.#keep(identity, verdict.workflow || earlier); // without a decision an earlier one stands
    const problem = verdict.allowed ? changed(call.arguments, admitted.arguments) || canceled(options) || markUsed(verdict) : '';
    if (problem) verdict = verdictOf('deny', problem, {decisionId: verdict.decisionId});
    if (!verdict.allowed) {
      await this.#report(admitted, 'ToolUseBlocked', {});
      throw new Refused(verdict, call.callId);
    }
    const executed = JSON.parse(canonical(admitted.arguments)); // the tool may change what it is given
    const started = new Date().toISOString();
    let outcome = 'failed';
    try {
      const result = await tool(admitted.arguments);
      if (typeof result?.next === 'function' && typeof result.throw === 'function') throw new TypeError(NO_GENERATOR);
      outcome = 'succeeded';
      return result;
    } finally {
      const execution = {outcome, started_at: started, completed_at: new Date().toISOString()};
      await this.#report(admitted, 'PostToolUse', {tool_input_executed: executed, execution, ...approvalOf(verdict)}, REPORT_TIME);
    }
  }

  #keep(identity, workflow) {
    if (workflow) this.#waiting.set(identity, workflow);
    if (this.#waiting.size > WAITING_LIMIT) this.#waiting.delete(this.#waiting.keys().next().value); // the oldest is the likeliest to have expired
  }

  guard(name, tool, {session, agent, ...options}) {
    const current = (value) => (typeof value === 'function' ? value() : value);
    return async (args) => this.run(newCall(name, args, current(session), undefined, {agent: current(agent)}), tool, options);
  }

  async publish(protocol, ...events) {
    await this.#publish('', protocol, events);
  }

  async publishIn(session, protocol, ...events) {
    if (typeof session !== 'string' || !HEADER_TEXT.test(session)) throw new TypeError('the session must be printable ASCII without spaces around it');
    await this.#publish(session, protocol, events);
  }

  async #publish(session, protocol, events) {
    const bodies = events.map((event) => canonical(event));
    try {
      await this.#transport.publish(protocol, bodies, this.#timeout, session);
    } catch (e) {
      const {message, certain, failed} = e instanceof Failure ? e : new Failure('in_doubt');
      throw new NotStored(message, certain, failed, {cause: e});
    }
  }

  /** Reports what became of a call; for so long tries again. A failure is told: the correlator then finds a call without an end. */
  async #report(call, type, metadata, time = 0) {
    try {
      await this.#publishUntil(this.#event(call, type, metadata), Date.now() + time);
    } catch (e) {
      try {
        this.#onUnreported(`countersign: call ${call.callId}: ${type} is not on record: ${e.message}`);
      } catch {
        // the call's own outcome matters more
      }
    }
  }

  /** Publishes an AgentHook event; tries again until the time end if it may be stored then, as after a restart of the gateway. */
  async #publishUntil(event, end) {
    for (let pause = 300; ; pause = Math.min(2 * pause, 2000)) {
      try {
        return await this.publish('agenthook', event);
      } catch (e) {
        if (!LATER.includes(e.code) || Date.now() + pause > end) throw e;
      }
      await sleep(pause);
    }
  }

  #event(call, type, metadata, more = {}) {
    return {
      schema_version: 1,
      event_id: type === 'PreToolUse' ? call.eventId : randomUUID(),
      event_type: type,
      timestamp: new Date().toISOString(),
      source: this.#publisher,
      session_id: call.session,
      tool_name: call.tool,
      ...(call.agent && {agent_id: call.agent}),
      metadata: {tool_call_id: call.callId, ...(call.traceparent && {traceparent: call.traceparent}), ...metadata},
      ...more,
    };
  }
}

/** The metadata by which a report names the approval that a call used. */
function approvalOf({workflow, decisionId}) {
  return workflow ? {approval: {required: true, status: 'approved', workflow_id: workflow, decision_ref: decisionId}} : {};
}

/** Returns why a call may not run whose arguments are not those that were admitted, or nothing. */
function changed(now, admitted) {
  try {
    return canonical(now) === canonical(admitted) ? '' : 'receipt_other_arguments';
  } catch {
    return 'receipt_other_arguments';
  }
}

function canceled(options) {
  return options?.signal?.aborted ? 'canceled' : '';
}

// What the words of the protocols' replies mean.
const GATE = {allow: 'allow', require_approval: 'ask', deny: 'deny'};
const WORDS = {
  aana: {accept: 'allow', ask: 'ask', defer: 'ask', refuse: 'deny'},
  aump: {allowed: 'allow', requires_escalation: 'ask', denied: 'deny'},
  tool: GATE,
  handoff: GATE,
  aaep: {allow: 'allow', ask: 'ask', defer: 'ask', deny: 'deny'},
};

/** Where the replies of protocols have the word, if not in decision. */
const MEMBERS = {aana: 'recommended_action', aaep: 'verdict'};

/** The verdict that a protocol's own reply states; undefined if it states none. */
function nativeDecision(protocol, reply) {
  const accepted = reply.recommended_action === 'accept';
  if (protocol === 'aana' && reply.execution_policy?.execution_allowed !== accepted) return undefined;
  const word = reply[MEMBERS[protocol] ?? 'decision'];
  return typeof word === 'string' ? WORDS[protocol]?.[word] : undefined;
}

/** The message of a reply, or else the first of its codes. What is no text is none. */
function reasonOf({reason, hard_blockers: blockers, reason_codes: codes, reasons}) {
  const first = (list) => (Array.isArray(list) ? list[0] : undefined);
  return [reason, first(blockers), first(codes), first(reasons)?.code].find((text) => typeof text === 'string' && text) ?? '';
}

const USED_LIMIT = 65_536;
const used = new Map(); // nonces that this process has used, and when none of their receipts holds any more
let forgotten = 0; // the latest end of a receipt that was dropped

/** Marks a receipt as used; returns why it may not be, or nothing. */
function markUsed({nonce, until}) {
  if (used.size >= USED_LIMIT) dropUsed(Date.now());
  if (used.has(nonce) || until <= forgotten) return 'receipt_used'; // the clock went back: it may have been dropped
  if (used.size >= USED_LIMIT) return 'receipt_use_unknown';
  used.set(nonce, until);
  return '';
}

function dropUsed(now) {
  for (const [nonce, until] of used) {
    if (until >= now) continue;
    used.delete(nonce);
    forgotten = Math.max(forgotten, until);
  }
}
