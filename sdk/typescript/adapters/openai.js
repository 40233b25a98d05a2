// OpenAI Agents: function tools that run only under a verdict.

import {Refused} from '../index.js';
import {callOf, waitOf} from './session.js';

export function guardTools(gate, tools, options) {
  return tools.map((tool) => guardTool(gate, tool, options));
}

function guardTool(gate, tool, options) {
  if (tool?.type !== 'function' || typeof tool.invoke !== 'function') {
    throw new TypeError(`the tool ${tool?.name} is no function tool: it does not run here, so nothing here can stop it`);
  }
  const invoke = async (context, input, details) => {
    const call = callOf(options, context, tool.name, parse(input), details?.toolCall?.callId);
    try {
      return await gate.run(call, (args) => tool.invoke(context, JSON.stringify(args), details), waitOf(options, details?.signal));
    } catch (e) {
      if (e instanceof Refused && e.callId === call.callId) return e.message; // the model reads it
      throw e;
    }
  };
  return {...tool, invoke};
}

/** Reads what a model wrote; what is no JSON has no arguments that could be admitted. */
function parse(text) {
  try {
    return JSON.parse(text || '{}');
  } catch {
    return undefined;
  }
}
