// Vercel AI SDK: tools that run only under a verdict.

import {callOf, waitOf} from './session.js';

export function guardTools(gate, tools, options) {
  return Object.fromEntries(Object.entries(tools).map(([name, tool]) => [name, guardTool(gate, name, tool, options)]));
}

function guardTool(gate, name, tool, options) {
  if (typeof tool?.execute !== 'function') {
    throw new TypeError(`the tool ${name} has no execute: it does not run here, so nothing here can stop it`);
  }
  const execute = (input, context) => {
    const call = callOf(options, context, name, input, context?.toolCallId);
    return gate.run(call, (args) => last(tool.execute(args, context)), waitOf(options, context?.abortSignal));
  };
  return {...tool, execute};
}

/** A tool may give its result in parts; the last one is its result. */
async function last(result) {
  if (typeof result?.[Symbol.asyncIterator] !== 'function') return result;
  let value;
  for await (value of result);
  return value;
}
