import {Agent, run} from '@axiastudio/aioc';
import {Client} from '@countersign/sdk';
import {handoffPolicy, toolPolicy} from '@countersign/sdk/aioc';

const gate = Client.fromReadyFile('ready.json');
const options = {session: 's', timeout: 1000};
void run(new Agent({name: 'a', model: 'x'}), 'x', {policies: {toolPolicy: toolPolicy(gate, options), handoffPolicy: handoffPolicy(gate, options)}});
