// LangChain: a middleware under which every tool runs only under a verdict.

import {ToolMessage} from '@langchain/core/messages';
import {Runnable} from '@langchain/core/runnables';
import {createMiddleware} from 'langchain';
import {Refused} from '../index.js';
import {callOf, waitOf} from './session.js';

/** A tool that answered with an error instead of throwing one. */
class Failed extends Error {
  constructor(answer) {
    super('the tool answered with an error');
    this.answer = answer;
  }
}

export function countersign(gate, options) {
  const wrapToolCall = async (request, handler) => {
    const {toolCall, runtime} = request;
    const call = callOf(options, runtime, toolCall.name, toolCall.args, toolCall.id);
    const tool = async (args) => {
      const answer = await handler({...request, toolCall: {...toolCall, args}});
      if (answer?.status === 'error') throw new Failed(answer);
      return answer;
    };
    try {
      return await gate.run(call, tool, waitOf(options, runtime?.signal));
    } catch (e) {
      if (e instanceof Failed) return e.answer;
      if (!(e instanceof Refused && e.callId === call.callId)) throw e; // another call's is the tool's own error
      return new ToolMessage({content: e.message, name: toolCall.name, tool_call_id: toolCall.id, status: 'error'});
    }
  };
  const wrapModelCall = (request, handler) => {
    const elsewhere = request.tools?.find((tool) => !Runnable.isRunnable(tool));
    if (elsewhere) throw new TypeError(`the tool ${elsewhere.name ?? elsewhere.type} does not run here, so nothing here can stop it`);
    return handler(request);
  };
  return createMiddleware({name: 'Countersign', wrapToolCall, wrapModelCall});
}
