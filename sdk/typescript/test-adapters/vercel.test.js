import assert from 'node:assert/strict';
import test from 'node:test';
import {generateText, isStepCount, tool} from 'ai';
import {MockLanguageModelV4} from 'ai/test';
import {guardTools} from '@countersign/sdk/vercel';
import {z} from 'zod';
import {holds, system, TOOLS} from './cases.js';

const usage = {inputTokens: {total: 1}, outputTokens: {total: 1}};

function scripted(calls, told) {
  let turn = 0;
  return new MockLanguageModelV4({
    async doGenerate({prompt}) {
      const last = prompt.at(-1);
      if (last.role === 'tool') told.push(JSON.stringify(last.content));
      const call = calls[turn++];
      const content = call
        ? [{type: 'tool-call', toolCallId: 'call-' + crypto.randomUUID(), toolName: call[0], input: JSON.stringify({path: call[1]})}]
        : [{type: 'text', text: 'done'}];
      return {content, finishReason: {unified: call ? 'tool-calls' : 'stop', raw: ''}, usage, warnings: []};
    },
  });
}

holds('vercel', async (gate, session, calls, ran, agent) => {
  const inputSchema = z.object({path: z.string()});
  const execute = async function* ({path}) { yield 'wait'; ran.push(path); yield 'read ' + path; };
  const made = Object.fromEntries(TOOLS.map((name) => [name, tool({description: name, inputSchema, execute})]));
  const told = [];
  await generateText({model: scripted(calls, told), tools: guardTools(gate, made, {session, agent}), prompt: 'Do as you are told.', stopWhen: isStepCount(9)});
  return told;
});

test('vercel: what cannot be guarded', async () => {
  assert.throws(() => guardTools(system, {search: {type: 'provider'}}, {session: 's'}), TypeError);
  const {allowed_tool: broken} = guardTools(system, {allowed_tool: {execute: () => assert.fail('it ran')}}, {session: 's'});
  await assert.rejects(broken.execute({path: new Date()}, {toolCallId: 'x'}), /bad_arguments/);
  await assert.rejects(broken.execute({path: '/x'}, {abortSignal: AbortSignal.abort()}), /canceled/);
  const {allowed_tool: stopped} = guardTools(system, {allowed_tool: {execute: () => assert.fail('it ran')}}, {session: 's', signal: AbortSignal.abort()});
  await assert.rejects(stopped.execute({path: '/x'}, {}), /canceled/);
});
