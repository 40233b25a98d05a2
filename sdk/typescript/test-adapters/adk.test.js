import assert from 'node:assert/strict';
import test from 'node:test';
import {BaseLlm, FunctionTool, GOOGLE_SEARCH, InMemoryRunner, LlmAgent} from '@google/adk';
import {guardTools} from '@countersign/sdk/adk';
import {holds, system} from './cases.js';

class Scripted extends BaseLlm {
  turn = 0;

  constructor(calls, told) {
    super({model: 'scripted'});
    this.calls = calls;
    this.told = told;
  }

  async *generateContentAsync({contents}) {
    const response = contents.at(-1).parts[0].functionResponse;
    if (response) this.told.push(JSON.stringify(response.response));
    const call = this.calls[this.turn++];
    const part = call ? {functionCall: {id: 'call-' + crypto.randomUUID(), name: call[0], args: {path: call[1]}}} : {text: 'done'};
    yield {content: {role: 'model', parts: [part]}};
  }
}

holds('adk', async (gate, session, calls, ran) => {
  const parameters = {type: 'OBJECT', properties: {path: {type: 'STRING'}}};
  const made = ['allowed_tool', 'denied_tool'].map((name) =>
    new FunctionTool({name, description: name, parameters, execute: ({path}) => { ran.push(path); return 'read ' + path; }}));
  const told = [];
  const agent = new LlmAgent({name: 'a', model: new Scripted(calls, told), tools: guardTools(gate, made, {session: () => session})});
  for await (const _ of new InMemoryRunner({agent, appName: 'a'}).runEphemeral({userId: 'u', newMessage: {role: 'user', parts: [{text: 'Do as you are told.'}]}}));
  return told;
});

test('adk: the caller stops', async () => {
  const tool = new FunctionTool({name: 'allowed_tool', description: 'd', parameters: {type: 'OBJECT', properties: {}}, execute: () => assert.fail('it ran')});
  const [stopped] = guardTools(system, [tool], {session: 's', signal: AbortSignal.abort()});
  await assert.rejects(stopped.runAsync({args: {}, toolContext: {}}), /canceled/);
});

test('adk: what cannot be guarded', () => {
  assert.throws(() => guardTools(system, [{getTools() {}}]), TypeError);
  assert.throws(() => guardTools(system, [GOOGLE_SEARCH]), TypeError);
});
