import {generateText, tool, type LanguageModel} from 'ai';
import {Client} from '@countersign/sdk';
import {guardTools} from '@countersign/sdk/vercel';
import {z} from 'zod';

declare const model: LanguageModel;
const gate = Client.fromReadyFile('ready.json');
const read = tool({description: 'r', inputSchema: z.object({path: z.string()}), execute: async ({path}) => path});
void generateText({model, prompt: 'x', tools: guardTools(gate, {read}, {session: (context) => context.toolCallId})});
