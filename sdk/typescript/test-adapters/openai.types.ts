import {Agent, tool} from '@openai/agents-core';
import {Client} from '@countersign/sdk';
import {guardTools} from '@countersign/sdk/openai';
import {z} from 'zod';

const gate = Client.fromReadyFile('ready.json');
const read = tool({name: 'read', description: 'r', parameters: z.object({path: z.string()}), execute: ({path}) => path});
new Agent({name: 'a', tools: guardTools(gate, [read], {session: 's', wait: 1000})});
