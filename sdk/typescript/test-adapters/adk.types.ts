import {FunctionTool, LlmAgent} from '@google/adk';
import {Client} from '@countersign/sdk';
import {guardTools} from '@countersign/sdk/adk';

const gate = Client.fromReadyFile('ready.json');
const read = new FunctionTool({name: 'read', description: 'r', execute: () => 'x'});
new LlmAgent({name: 'a', model: 'x', tools: guardTools(gate, [read], {agent: (context) => context.agentName})});
