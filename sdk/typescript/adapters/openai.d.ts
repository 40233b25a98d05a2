import type {FunctionTool, RunContext} from '@openai/agents-core';
import type {Client, Wait} from '../index.js';

/**
 * Function tools that run only under a verdict. A refusal is the tool's output, which the model reads.
 * Tools of MCP servers: get them by getAllMcpTools, and guard those.
 * Throws TypeError for a tool that runs elsewhere (hosted tools).
 */
export function guardTools<C, T extends FunctionTool<C, any, any>>(
  gate: Client,
  tools: readonly T[],
  options: Wait & {session: string | ((context: RunContext<C>) => string)},
): T[];
