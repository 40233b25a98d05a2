import type {Tool, ToolExecutionOptions} from 'ai';
import type {Client, GuardOptions} from '../index.js';

/**
 * Tools that run only under a verdict. A refusal is a tool error with a Refused, whose text the model reads.
 * Of a result in parts only the last part comes through.
 * Throws TypeError for a tool without execute: it runs elsewhere.
 */
export function guardTools<T extends Record<string, Tool<any, any, any>>>(
  gate: Client,
  tools: T,
  options: GuardOptions<ToolExecutionOptions<any>>,
): T;
