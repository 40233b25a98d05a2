import type {AgentMiddleware} from 'langchain';
import type {Client, GuardOptions} from '../index.js';

/**
 * A middleware for createAgent under which every tool runs only under a verdict. A refusal is a ToolMessage of status
 * error, which the model reads. Put it last in the list: a middleware after it could change what runs.
 * Policies see the arguments as the model wrote them, before the schema's defaults and transforms.
 * An exception of a tool ends the agent's run, as under every middleware of tool calls: toolErrorMiddleware before this
 * one tells the model instead. With a tool that runs at the model's side, invoke rejects: nothing here could stop it.
 * session and agent: texts, or functions of the runtime, such as (r) => r.configurable.thread_id.
 */
export function countersign(gate: Client, options: GuardOptions<any>): AgentMiddleware;
