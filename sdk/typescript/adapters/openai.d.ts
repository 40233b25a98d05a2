import type {FunctionTool, RunContext} from '@openai/agents-core';
import type {Client, GuardOptions} from '../index.js';

/**
 * Function tools that run only under a verdict. A refusal is the tool's output, which the model reads.
 * Tools of MCP servers: get them by getAllMcpTools, and guard those.
 * Policies, and a needsApproval function of the tool, see the arguments as the model wrote them, before the schema's
 * defaults and transforms.
 * Throws TypeError for a tool that runs elsewhere (hosted tools).
 */
export function guardTools<C, T extends FunctionTool<C, any, any>>(
  gate: Client,
  tools: readonly T[],
  options: GuardOptions<RunContext<C>>,
): T[];
