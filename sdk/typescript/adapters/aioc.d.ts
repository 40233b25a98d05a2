import type {Client, Json} from '../index.js';

/** aioc's PolicyResult. */
export interface PolicyResult {
  decision: 'allow' | 'deny' | 'require_approval';
  reason: string;
  publicReason?: string;
  resultMode?: 'throw' | 'tool_result';
  policyVersion?: string;
  expiresAt?: string;
  /** Of a verdict also session and callId: what ran is reported under them. aioc keeps it in its PolicyDecisionRecord. */
  metadata?: Record<string, unknown>;
}

export interface PolicyOptions {
  /** A text, or a function of aioc's RunContext. */
  session: string | ((runContext: any) => string);
  /** Milliseconds after which a proposal is refused (policy_error). Default: the client's timeout. */
  timeout?: number;
  /** What policies see as runContext.context. Without it they see nothing of it: a context may hold secrets. */
  context?: (runContext: any) => Json;
}

/**
 * Policies for `policies` of aioc's run. A gateway that fails is policy_error, an answer that is no policy result
 * invalid_policy_result; an allow counts only with a valid receipt. After require_approval and a person's approval, run the same proposal again
 * in this process.
 */
export function toolPolicy(gate: Client, options: PolicyOptions): (input: any) => Promise<PolicyResult>;
export function handoffPolicy(gate: Client, options: PolicyOptions): (input: any) => Promise<PolicyResult>;
