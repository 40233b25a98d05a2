import type {AgentMiddleware} from 'langchain';
import type {Client, Wait} from '../index.js';

/**
 * A middleware for createAgent under which every tool runs only under a verdict. A refusal is a ToolMessage of status
 * error, which the model reads. Put it last in the list: a middleware after it could change what runs.
 * session: a text, or a function of the runtime, such as (r) => r.configurable.thread_id.
 */
export function countersign(gate: Client, options: Wait & {session: string | ((runtime: any) => string)}): AgentMiddleware;
