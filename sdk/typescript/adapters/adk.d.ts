import type {BaseTool, Context} from '@google/adk';
import type {Client, Wait} from '../index.js';

/**
 * Tools that run only under a verdict, after all callbacks and plugins. A refusal is the tool's error, whose text
 * the model reads. session: default the ADK session's id.
 * Throws TypeError for a toolset, and for a tool that runs at the model's side (such as Google Search).
 */
export function guardTools<T extends BaseTool>(
  gate: Client,
  tools: readonly T[],
  options?: Wait & {session?: string | ((context: Context) => string)},
): T[];
