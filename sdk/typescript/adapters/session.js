import {newCall} from '../index.js';

/** A call of a framework, some of which give it no id, or an empty one. session and agent are texts, or functions of its context. */
export function callOf({session, agent}, context, tool, args, callId) {
  return newCall(tool, args, sessionOf(session, context), callId || undefined, {agent: typeof agent === 'function' ? agent(context) : agent});
}

/** How long a call waits, and what ends that: the signal of the caller, and the framework's own. */
export function waitOf({wait, signal}, own) {
  return {wait, signal: AbortSignal.any([signal, own].filter(Boolean))};
}

/** The session of a call: a fixed one, or what a function makes of the framework's context. */
export function sessionOf(session, context) {
  const name = typeof session === 'function' ? session(context) : session;
  if (typeof name !== 'string' || name === '') throw new TypeError('a session is needed: a text, or a function that gives one');
  return name;
}
