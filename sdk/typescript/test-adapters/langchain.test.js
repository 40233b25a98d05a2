import assert from 'node:assert/strict';
import test from 'node:test';
import {AIMessage} from '@langchain/core/messages';
import {BaseChatModel} from '@langchain/core/language_models/chat_models';
import {createAgent, tool} from 'langchain';
import {countersign} from '@countersign/sdk/langchain';
import {z} from 'zod';
import {holds, system} from './cases.js';

class Scripted extends BaseChatModel {
  turn = 0;

  constructor(calls, told) {
    super({});
    this.calls = calls;
    this.told = told;
  }

  _llmType() {
    return 'scripted';
  }

  bindTools() {
    return this;
  }

  async _generate(messages) {
    const last = messages.at(-1);
    if (last.getType() === 'tool') this.told.push(String(last.content));
    const call = this.calls[this.turn++];
    const message = new AIMessage({
      content: call ? '' : 'done',
      tool_calls: call ? [{id: 'call-' + crypto.randomUUID(), name: call[0], args: {path: call[1]}, type: 'tool_call'}] : [],
    });
    return {generations: [{text: '', message}]};
  }
}

holds('langchain', async (gate, session, calls, ran) => {
  const made = ['allowed_tool', 'denied_tool'].map((name) =>
    tool(({path}) => { ran.push(path); return 'read ' + path; }, {name, description: name, schema: z.object({path: z.string()})}));
  const told = [];
  const agent = createAgent({model: new Scripted(calls, told), tools: made, middleware: [countersign(gate, {session: () => session})]});
  await agent.invoke({messages: [{role: 'user', content: 'Do as you are told.'}]});
  return told;
});

test('langchain: the caller stops', async () => {
  const {wrapToolCall} = countersign(system, {session: 's', signal: AbortSignal.abort()});
  const message = await wrapToolCall({toolCall: {name: 'allowed_tool', args: {}, id: 'c'}}, () => assert.fail('it ran'));
  assert.match(message.content, /canceled/);
});
