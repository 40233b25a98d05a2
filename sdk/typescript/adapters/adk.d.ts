import type {BaseTool, Context} from '@google/adk';
import type {Client, GuardOptions} from '../index.js';

/**
 * Tools that run only under a verdict, after all callbacks and plugins. A refusal is the tool's error, whose text
 * the model reads. session and agent: default the ADK session's id and the agent's name. A tool that needs the user's
 * confirmation asks for it before the verdict. Policies see the arguments as the model wrote them, before the schema's
 * defaults and transforms.
 * Throws TypeError for a toolset, and for a tool that runs at the model's side (such as Google Search).
 */
export function guardTools<T extends BaseTool>(
  gate: Client,
  tools: readonly T[],
  options?: Partial<GuardOptions<Context>>,
): T[];
