import type {Client, Json, NativeOptions, Verdict, Wait} from './index.js';

/** AANA's Agent Action Contract event. */
export interface ToolPrecheckEvent {
  tool_name: string;
  tool_category: 'public_read' | 'private_read' | 'write' | 'unknown';
  authorization_state: 'none' | 'user_claimed' | 'authenticated' | 'validated' | 'confirmed';
  evidence_refs: Json[];
  risk_domain: string;
  proposed_arguments: {[name: string]: Json};
  recommended_route: 'accept' | 'ask' | 'defer' | 'refuse';
  schema_version?: string;
  request_id?: string;
  agent_id?: string;
  user_intent?: string;
  authorization_subject?: {[name: string]: Json};
}

export interface CallOptions extends NativeOptions {
  session: string;
  /** The call's id. Default: a new one. */
  callId?: string;
}

/** AANA's result is reply, null if none came that counts. */
export interface ToolPrecheck {
  verdict: Verdict;
  reply: any;
}

/** An event with what is not given as what permits least: category unknown, authorization none, no evidence. */
export function toolPrecheckEvent(fields: Partial<ToolPrecheckEvent> & {tool_name: string}): ToolPrecheckEvent;
/** Asks. Never rejects for a refusal or a failure. */
export function checkToolPrecheck(gate: Client, event: ToolPrecheckEvent, options: CallOptions): Promise<ToolPrecheck>;
/** Reports whether the tool may run now: accepted, and with a valid receipt. A receipt counts once; executeToolIfAllowed sees to that. */
export function shouldExecuteTool(check: ToolPrecheck): boolean;
/** Asks, runs the tool once with the proposed arguments, and reports how it ended. Rejects with Refused before it begins. */
export function executeToolIfAllowed<T>(gate: Client, event: ToolPrecheckEvent, tool: (args: any) => T | Promise<T>, options: CallOptions & Wait): Promise<T>;
