// LangChain: a middleware under which every tool runs only under a verdict.

import {ToolMessage} from '@langchain/core/messages';
import {createMiddleware} from 'langchain';
import {newCall, Refused} from '../index.js';
import {sessionOf, waitOf} from './session.js';

/** A tool that answered with an error instead of throwing one. */
class Failed extends Error {
  constructor(answer) {
    super('the tool answered with an error');
    this.answer = answer;
  }
}

export function countersign(gate, {session, ...options}) {
  const wrapToolCall = async (request, handler) => {
    const {toolCall, runtime} = request;
    const call = newCall(toolCall.name, toolCall.args, sessionOf(session, runtime), toolCall.id);
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
  return createMiddleware({name: 'Countersign', wrapToolCall});
}
