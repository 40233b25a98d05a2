// An agent whose tools run only under Countersign's word: one call is allowed, one is denied, and one
// waits for a person.
//
//     node examples/agents/agent.mjs ready.json
//
// Outside this repository, import '@countersign/sdk'.

import {Client, Refused} from '../../sdk/typescript/index.js';

const gate = Client.fromReadyFile(process.argv[2]);
const session = 'example-typescript';

const readFile = gate.guard('read_file', ({path}) => `the content of ${path}`, {session});
const writeFile = gate.guard('write_file', ({path, text}) => `${text.length} characters in ${path}`, {session});
const sendEmail = gate.guard('send_email', ({to}) => `sent to ${to}`, {session, wait: 60_000});

async function attempt(name, tool, args) {
  try {
    console.log(`${name}: ${await tool(args)}`);
  } catch (e) {
    if (!(e instanceof Refused)) throw e;
    console.log(`${name}: refused: ${e.message}`);
  }
}

await attempt('read_file', readFile, {path: '/etc/hostname'});
await attempt('write_file', writeFile, {path: '/etc/passwd', text: 'x'});
await attempt('send_email', sendEmail, {to: 'press@newspaper.example', subject: 'Figures'});
