import assert from 'node:assert/strict';
import test from 'node:test';
import {Agent, Runner, setTracingDisabled, tool, Usage} from '@openai/agents-core';
import {guardTools} from '@countersign/sdk/openai';
import {z} from 'zod';
import {holds, system, TOOLS} from './cases.js';

setTracingDisabled(true);

/** A model that makes the calls, one in a turn, and keeps what it is told. */
function scripted(calls, told) {
  let turn = 0;
  return {
    async getResponse({input}) {
      const last = Array.isArray(input) ? input.at(-1) : undefined;
      if (last?.type === 'function_call_result') told.push(JSON.stringify(last.output));
      const call = calls[turn++];
      const output = call
        ? [{type: 'function_call', callId: 'call-' + crypto.randomUUID(), name: call[0], arguments: JSON.stringify({path: call[1]}), status: 'completed'}]
        : [{type: 'message', role: 'assistant', status: 'completed', content: [{type: 'output_text', text: 'done'}]}];
      return {usage: new Usage(), output, responseId: 'r' + turn};
    },
    getStreamedResponse() {
      throw new Error('not scripted');
    },
  };
}

holds('openai', async (gate, session, calls, ran, agent) => {
  const made = TOOLS.map((name) =>
    tool({name, description: name, parameters: z.object({path: z.string()}), execute: ({path}) => { ran.push(path); return 'read ' + path; }}));
  const told = [];
  const runner = new Agent({name: 'a', tools: guardTools(gate, made, {session: () => session, agent}), model: scripted(calls, told)});
  await new Runner().run(runner, 'Do as you are told.');
  return told;
});

test('openai: policies and needsApproval see what the model wrote, the tool what its schema makes of it', async () => {
  const admitted = [], seen = [], ran = [];
  const counting = {run: (call, ...rest) => (admitted.push(call.arguments), system.run(call, ...rest))};
  const parameters = z.object({path: z.string(), deep: z.boolean().default(true)});
  const made = tool({name: 'allowed_tool', description: 'd', parameters, needsApproval: async (_, args) => (seen.push(args), false), execute: (args) => { ran.push(args); return 'done'; }});
  const agent = new Agent({name: 'a', tools: guardTools(counting, [made], {session: 's-adapter-schema'}), model: scripted([['allowed_tool', '/x']], [])});
  await new Runner().run(agent, 'Do as you are told.');
  assert.deepEqual([admitted, seen, ran], [[{path: '/x'}], [{path: '/x'}], [{path: '/x', deep: true}]]);
});

test('openai: what cannot be guarded', async () => {
  assert.throws(() => guardTools(system, [{type: 'hosted_tool', name: 'web_search'}], {session: 's'}), TypeError);
  const [broken] = guardTools(system, [{type: 'function', name: 'allowed_tool', invoke: () => assert.fail('it ran')}], {session: 's'});
  assert.match(await broken.invoke({}, '{"path":'), /bad_arguments/);
  assert.match(await broken.invoke({}, '{"path":"/x"}', {signal: AbortSignal.abort()}), /canceled/);
  const [stopped] = guardTools(system, [{type: 'function', name: 'allowed_tool', invoke: () => assert.fail('it ran')}], {session: 's', signal: AbortSignal.abort()});
  assert.match(await stopped.invoke({}, '{"path":"/x"}', {signal: new AbortController().signal}), /canceled/);
  const [homeless] = guardTools(system, [{type: 'function', name: 'allowed_tool', invoke: () => assert.fail('it ran')}], {});
  await assert.rejects(homeless.invoke({}, '{}'), TypeError);
});
