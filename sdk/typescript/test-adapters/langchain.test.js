import assert from 'node:assert/strict';
import test from 'node:test';
import {AIMessage} from '@langchain/core/messages';
import {BaseChatModel} from '@langchain/core/language_models/chat_models';
import {createAgent, tool, toolErrorMiddleware} from 'langchain';
import {countersign} from '@countersign/sdk/langchain';
import {z} from 'zod';
import {holds, system, TOOLS} from './cases.js';

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

holds('langchain', async (gate, session, calls, ran, agent) => {
  const made = TOOLS.map((name) =>
    tool(({path}) => { ran.push(path); return 'read ' + path; }, {name, description: name, schema: z.object({path: z.string()})}));
  const told = [];
  const runner = createAgent({model: new Scripted(calls, told), tools: made, middleware: [countersign(gate, {session: () => session, agent})]});
  await runner.invoke({messages: [{role: 'user', content: 'Do as you are told.'}]});
  return told;
});

test('langchain: an exception of a tool ends the run, unless a middleware before stops it', async () => {
  const failing = tool(() => { throw new RangeError('no such file'); }, {name: 'allowed_tool', description: 'd', schema: z.object({path: z.string()})});
  const gate = countersign(system, {session: 's-adapter-failing'}), told = [];
  const run = (...before) => createAgent({model: new Scripted([['allowed_tool', '/x']], told), tools: [failing], middleware: [...before, gate]}).invoke({messages: [{role: 'user', content: 'Do as you are told.'}]});
  await assert.rejects(run(), /no such file/);
  await run(toolErrorMiddleware({onError: (e) => e.name}));
  assert.deepEqual(told, ['RangeError']);
});

test('langchain: what cannot be guarded', async () => {
  const agent = createAgent({model: new Scripted([], []), tools: [{type: 'web_search', name: 'search'}], middleware: [countersign(system, {session: 's'})]});
  await assert.rejects(agent.invoke({messages: [{role: 'user', content: 'Search.'}]}), /the tool search does not run here/);
});

test('langchain: the caller stops', async () => {
  const {wrapToolCall} = countersign(system, {session: 's', signal: AbortSignal.abort()});
  const message = await wrapToolCall({toolCall: {name: 'allowed_tool', args: {}, id: 'c'}}, () => assert.fail('it ran'));
  assert.match(message.content, /canceled/);
});
