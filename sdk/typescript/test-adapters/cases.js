// What every adapter must hold, in the real framework with a scripted model. COUNTERSIGN_READY_FILE names a
// running system, whose policies are those of test/sdk_test.go.

import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import test from 'node:test';
import {Client} from '@countersign/sdk';

const ready = process.env.COUNTERSIGN_READY_FILE;
export const system = Client.fromReadyFile(ready);
export const away = Client.fromReadyFile(ready, {gateway: 'http://127.0.0.1:1', onUnreported: () => {}});

export const TOOLS = ['allowed_tool', 'denied_tool', 'asked_tool', 'agent_tool'];

/** A client whose caller changes the arguments as soon as they are on their way. */
const hasty = {
  run(call, ...rest) {
    const answer = system.run(call, ...rest);
    call.arguments.path = '/changed';
    return answer;
  },
};

/**
 * drive(gate, session, calls, ran, agent) runs an agent of the framework whose model makes the calls one after the other, and whose tools
 * TOOLS, of one argument, path, add it to ran. It returns what the model was told of each call.
 */
export function holds(framework, drive) {
  test(framework + ': a denied call does not run, and the model is told why; an allowed one runs once', async () => {
    const ran = [];
    const told = await drive(system, 's-adapter-' + framework, [['denied_tool', '/a'], ['allowed_tool', '/b']], ran, () => 'billing');
    assert.deepEqual(ran, ['/b']);
    assert.match(told[0], /This tool is forbidden/);
    assert.match(told[1], /read \/b/);
  });
  test(framework + ': policies see the agent', async () => {
    const ran = [];
    const told = await drive(system, 's-adapter-agent', [['agent_tool', '/d']], ran, () => 'billing');
    await drive(system, 's-adapter-agent', [['agent_tool', '/e']], ran, 'intern');
    assert.deepEqual(ran, ['/d'], told[0]);
  });
  test(framework + ': an approval that comes later is for the identical call', async () => {
    const ran = [], attempt = async () => (await drive(system, 's-adapter-later-' + framework, [['asked_tool', '/f']], ran))[0];
    const [, workflow] = /workflow (wf-[\w-]+)/.exec(await attempt());
    execFileSync(process.env.COUNTERSIGN, ['approvals', 'approve', workflow, '--yes'], {stdio: 'pipe'});
    assert.match(await attempt(), /read \/f/);
    assert.match(await attempt(), /A person must approve/);
    assert.deepEqual(ran, ['/f']);
  });
  test(framework + ': arguments that change after the admission are refused', () => refused(hasty, /receipt_other_arguments/));
  test(framework + ': with the gateway away nothing runs', () => refused(away, /not_reachable/));

  async function refused(gate, why) {
    const ran = [];
    const [told] = await drive(gate, 's-adapter-refused', [['allowed_tool', '/c']], ran);
    assert.deepEqual(ran, []);
    assert.match(told, why);
  }
}
