// Google ADK: tools that run only under a verdict.

import {newCall} from '../index.js';
import {sessionOf, waitOf} from './session.js';

export function guardTools(gate, tools, options = {}) {
  return tools.map((tool) => guardTool(gate, tool, options));
}

function guardTool(gate, tool, {session = sessionOfContext, ...options}) {
  if (typeof tool?.runAsync !== 'function' || tool._getDeclaration?.() === undefined) {
    throw new TypeError(`the tool ${tool?.name} does not run here, so nothing here can stop it; of a toolset guard what getTools gives`);
  }
  const runAsync = ({args, toolContext}) => {
    const call = newCall(tool.name, args, sessionOf(session, toolContext), toolContext.functionCallId || undefined);
    return gate.run(call, (admitted) => tool.runAsync({args: admitted, toolContext}), waitOf(options, toolContext.invocationContext?.abortSignal));
  };
  return Object.create(tool, {runAsync: {value: runAsync}});
}

function sessionOfContext(toolContext) {
  return toolContext.invocationContext.session.id;
}
