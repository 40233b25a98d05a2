import {createAgent} from 'langchain';
import {Client} from '@countersign/sdk';
import {countersign} from '@countersign/sdk/langchain';

const gate = Client.fromReadyFile('ready.json');
createAgent({model: 'x', tools: [], middleware: [countersign(gate, {session: (runtime) => runtime.configurable.thread_id, agent: 'reader'})]});
