// AANA's tool pre-check, with receipts that are checked.

import {randomUUID} from 'node:crypto';
import {canonical} from './index.js';

export function toolPrecheckEvent(fields) {
  if (typeof fields?.tool_name !== 'string' || fields.tool_name === '') throw new TypeError('tool_name is needed');
  return {
    schema_version: 'aana.agent_tool_precheck.v1',
    tool_category: 'unknown',
    authorization_state: 'none',
    evidence_refs: [],
    risk_domain: 'unknown',
    proposed_arguments: {},
    recommended_route: 'accept',
    ...fields,
  };
}

export async function checkToolPrecheck(gate, event, options) {
  const [request, call] = prepare(event, options);
  return gate.admitNative('aana', request, call, options);
}

export function shouldExecuteTool(check) {
  return check?.verdict?.allowed === true && check.reply?.execution_policy?.execution_allowed === true;
}

export async function executeToolIfAllowed(gate, event, tool, options) {
  const [request, call] = prepare(event, options);
  return gate.runNative('aana', request, call, tool, options);
}

/** The event as it is sent, which its sender cannot change any more, and the call that it is about. */
function prepare(event, options) {
  const {session, callId = 'call-' + randomUUID()} = options;
  const call = {tool: event?.tool_name, arguments: event?.proposed_arguments, session, callId};
  try {
    return [JSON.parse(canonical(event)), call];
  } catch {
    return [undefined, call]; // bad_arguments
  }
}
