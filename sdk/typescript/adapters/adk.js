// Google ADK: tools that run only under a verdict.

import {callOf, waitOf} from './session.js';

export function guardTools(gate, tools, options = {}) {
  return tools.map((tool) => guardTool(gate, tool, options));
}

function guardTool(gate, tool, {session = sessionOfContext, agent = agentOfContext, ...options}) {
  if (typeof tool?.runAsync !== 'function' || tool._getDeclaration?.() === undefined) {
    throw new TypeError(`the tool ${tool?.name} does not run here, so nothing here can stop it; of a toolset guard what getTools gives`);
  }
  const runAsync = async ({args, toolContext}) => {
    const unconfirmed = await confirmation(tool, args, toolContext);
    if (unconfirmed) return unconfirmed;
    const call = callOf({session, agent}, toolContext, tool.name, args, toolContext.functionCallId);
    return gate.run(call, (admitted) => tool.runAsync({args: admitted, toolContext}), waitOf(options, toolContext.invocationContext?.abortSignal));
  };
  return Object.create(tool, {runAsync: {value: runAsync}});
}

/** What a tool answers that needs the user's confirmation and does not have it: it asks for it, and does not run. Undefined of one that may run. */
async function confirmation(tool, args, toolContext) {
  const {toolConfirmation: given} = toolContext;
  if (given?.confirmed || !(await tool.checkRequireConfirmation(args, toolContext))) return undefined;
  if (given) return {error: `The user rejects this call of ${tool.name}.`};
  toolContext.requestConfirmation({hint: `May ${tool.name} run? Answer with a ToolConfirmation: confirmed is true or false.`});
  toolContext.actions.skipSummarization = true;
  return {error: `This call of ${tool.name} waits for the user's confirmation.`};
}

function sessionOfContext(toolContext) {
  return toolContext.invocationContext.session.id;
}

function agentOfContext(toolContext) {
  return toolContext.agentName;
}
