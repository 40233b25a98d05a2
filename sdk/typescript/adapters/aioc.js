// aioc: policies for its tool and handoff gates, with a time-out of their own.

import {randomUUID} from 'node:crypto';
import {sessionOf} from './session.js';

export function toolPolicy(gate, options) {
  const decide = decider(gate, 'tool', options);
  return ({agentName, toolName, rawArguments, parsedArguments, proposalHash, argsCanonicalJson, turn, runContext}) => {
    const request = {agentName, toolName, rawArguments, parsedArguments, proposalHash, argsCanonicalJson, turn};
    return decide(request, toolName, parsedArguments, runContext);
  };
}

export function handoffPolicy(gate, options) {
  const decide = decider(gate, 'handoff', options);
  return ({fromAgentName, toAgentName, handoffPayload, proposalHash, payloadCanonicalJson, turn, runContext}) => {
    const request = {fromAgentName, toAgentName, handoffPayload, proposalHash, payloadCanonicalJson, turn};
    return decide(request, handoffTool(toAgentName), {fromAgentName, toAgentName, handoffPayload}, runContext);
  };
}

const PENDING_LIMIT = 1000;

function decider(gate, protocol, {session, timeout, context}) {
  const pending = new Map(); // what waits for a person, by session and proposal: an approval is for one call
  return async (request, tool, args, runContext) => {
    const name = sessionOf(session, runContext);
    const key = `${request.proposalHash} ${name}`;
    const kept = pending.get(key);
    pending.delete(key); // no two proposals share a call's id, and with it a receipt
    const {callId, workflow} = kept ?? {callId: 'call-' + randomUUID()};
    const body = context ? {...request, runContext: {context: context(runContext)}} : request;
    const {verdict, reply} = await gate.admitNative(protocol, body, {tool, arguments: args, session: name, callId}, {timeout, workflow});
    const waits = ['ask', 'defer'].includes(verdict.decision) ? {callId, workflow: verdict.workflow} : reply === null && kept;
    if (waits) pending.set(key, waits);
    if (pending.size > PENDING_LIMIT) pending.delete(pending.keys().next().value); // the oldest is the likeliest to have expired
    if (verdict.reason === 'bad_reply') return null; // aioc records invalid_policy_result
    if (reply !== null) return {...reply, metadata: {...reply.metadata, session: name, callId}}; // aioc's own callId is not known here
    if (!verdict.reason.startsWith('receipt_')) throw new Error(verdict.reason); // aioc records policy_error
    return {decision: 'deny', reason: verdict.reason, resultMode: 'throw'}; // an allow whose receipt does not hold
  };
}

/** The tool name of a handoff, as aioc makes it. */
function handoffTool(agent) {
  const name = agent.trim().toLowerCase().replace(/[^a-z0-9]+/g, '_').replace(/^_+|_+$/g, '');
  return 'handoff_to_' + (name || 'agent');
}
