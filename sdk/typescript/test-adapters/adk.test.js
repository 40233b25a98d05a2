import assert from 'node:assert/strict';
import test from 'node:test';
import {BaseLlm, FunctionTool, GOOGLE_SEARCH, InMemoryRunner, LlmAgent} from '@google/adk';
import {guardTools} from '@countersign/sdk/adk';
import {holds, system, TOOLS} from './cases.js';

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

holds('adk', async (gate, session, calls, ran, whose) => {
  const parameters = {type: 'OBJECT', properties: {path: {type: 'STRING'}}};
  const made = TOOLS.map((name) =>
    new FunctionTool({name, description: name, parameters, execute: ({path}) => { ran.push(path); return 'read ' + path; }}));
  const told = [];
  const agent = new LlmAgent({name: 'a', model: new Scripted(calls, told), tools: guardTools(gate, made, {session: () => session, agent: whose})});
  for await (const _ of new InMemoryRunner({agent, appName: 'a'}).runEphemeral({userId: 'u', newMessage: {role: 'user', parts: [{text: 'Do as you are told.'}]}}));
  return told;
});

test('adk: a tool that needs the user\'s confirmation is admitted once the user has given it', async () => {
  const ran = [], asked = [], told = [];
  const counting = {run: (call, ...rest) => (asked.push([call.arguments.path, call.agent]), system.run(call, ...rest))};
  const parameters = {type: 'OBJECT', properties: {path: {type: 'STRING'}}};
  const tool = new FunctionTool({name: 'allowed_tool', description: 'd', parameters, requireConfirmation: true, execute: ({path}) => { ran.push(path); return 'read ' + path; }});
  const agent = new LlmAgent({name: 'reader', model: new Scripted([['allowed_tool', '/yes'], ['allowed_tool', '/no']], told), tools: guardTools(counting, [tool])});
  const runner = new InMemoryRunner({agent, appName: 'a'});
  const {id: sessionId} = await runner.sessionService.createSession({appName: 'a', userId: 'u'});
  /** Sends a message; returns the id of the confirmation that is asked for. */
  async function send(part) {
    let id;
    for await (const event of runner.runAsync({userId: 'u', sessionId, newMessage: {role: 'user', parts: [part]}})) {
      for (const {functionCall} of event.content?.parts ?? []) if (functionCall?.name === 'adk_request_confirmation') id = functionCall.id;
    }
    return id;
  }
  const answer = (id, confirmed) => send({functionResponse: {id, name: 'adk_request_confirmation', response: {confirmed}}});
  const yes = await send({text: 'Do as you are told.'});
  assert.deepEqual([ran, asked], [[], []]);
  const no = await answer(yes, true);
  assert.ok(no && no !== yes, 'the second call asks, too');
  await answer(no, false);
  assert.deepEqual([ran, asked], [['/yes'], [['/yes', 'reader']]]);
  assert.match(told.at(-1), /rejects/);
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
