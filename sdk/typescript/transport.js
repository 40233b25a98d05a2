// How requests and events travel: by HTTP through a gateway. nats.js is the other way.

import {Agent, request as httpRequest} from 'node:http';
import {Agent as TLSAgent, request as httpsRequest} from 'node:https';

/**
 * A request without an answer that counts; its message is a code. certain: nothing that failed was done. failed: the
 * positions of the events that are not stored, if only some are not.
 */
export class Failure extends Error {
  constructor(code, certain = false, failed = undefined) {
    super(code);
    this.certain = certain;
    this.failed = failed;
  }
}

export const MAX_REPLY = 4 << 20;
export const MAX_BODY = 1 << 20; // that a gateway takes at most
const NOT_STORED = ['not_stored', 'overloaded', 'stopping', 'unavailable']; // codes of a status from 500 on that say so for certain
const NOT_CONNECTED = ['ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH', 'ENOTFOUND', 'EAI_AGAIN', 'UND_ERR_CONNECT_TIMEOUT'];

export class HTTP {
  #gateway;
  #local;
  #token;

  constructor(gateway, token) {
    this.#local = checkAddress(gateway);
    this.#gateway = gateway.replace(/\/+$/, '');
    if (!token) throw new TypeError('a token is needed');
    if (typeof token === 'string') checkToken(token);
    this.#token = token;
  }

  /** Asks for admission; returns status, headers and text of the answer. */
  admit(protocol, body, headers, timeout) {
    return this.#post(protocol === 'agenthook' ? '/event' : '/v1/admit/' + encodeURIComponent(protocol), body, headers, timeout);
  }

  /** Stores events, texts of JSON. */
  async publish(protocol, events, timeout, session) {
    const headers = session ? {'Countersign-Session': session} : {};
    const body = `[${events.join(',')}]`;
    if (Buffer.byteLength(body) > MAX_BODY) throw new Failure('request_too_large', true);
    const {status, text} = await this.#post('/v1/events/' + encodeURIComponent(protocol), body, headers, timeout);
    if (status !== 200) throw notStored(status, parse(text));
  }

  /** Waits until a workflow is not pending, or for so many seconds; returns status and text of the answer. */
  approval(workflow, seconds, timeout, signal) {
    return this.#send(`/v1/approvals/${workflow}?wait=${seconds}`, {method: 'GET'}, {}, timeout, signal);
  }

  #post(path, body, more, timeout) {
    return this.#send(path, {method: 'POST', body}, {...more, 'Content-Type': 'application/json'}, timeout);
  }

  /** The token of a request, which may end before there is one. */
  async #currentToken(ended) {
    if (typeof this.#token === 'string') return this.#token;
    try {
      ended.throwIfAborted(); // a signal tells that once
      const over = new Promise((done) => ended.addEventListener('abort', () => done(), {once: true}));
      return checkToken(await Promise.race([over, this.#token()]));
    } catch {
      throw new Failure(ended.aborted ? 'timeout' : 'no_token', true);
    }
  }

  async #send(path, request, more, timeout, signal) {
    const late = AbortSignal.timeout(timeout), ended = signal ? AbortSignal.any([late, signal]) : late;
    try {
      const headers = {...more, Authorization: 'Bearer ' + await this.#currentToken(ended)};
      // A redirect would carry the token to another address.
      const answer = await (this.#local ? fetchHere : fetch)(this.#gateway + path, {...request, headers, redirect: 'manual', signal: ended});
      return {status: answer.status, headers: answer.headers, text: await readAll(answer)};
    } catch (e) {
      if (e instanceof Failure) throw e;
      throw new Failure(late.aborted ? 'timeout' : 'not_reachable', NOT_CONNECTED.includes(e.code ?? e.cause?.code));
    }
  }
}

/** fetch for addresses of this machine: agents of its own use no proxy, whatever environment or application say, and follow no redirect. */
function fetchHere(address, {method, headers, body, signal}) {
  const url = new URL(address);
  const [request, agent] = url.protocol === 'https:' ? [httpsRequest, new TLSAgent()] : [httpRequest, new Agent()];
  return new Promise((resolve, reject) => {
    request(url, {method, headers, signal, agent}, (answer) => {
      resolve({status: answer.statusCode, headers: {get: (name) => answer.headers[name.toLowerCase()] ?? null}, body: answer});
    }).on('error', reject).end(body);
  });
}

/** The code by which an answer says what is wrong. Any other text is left out: it may repeat the request, token included. */
export function errorCode(status, reply) {
  const found = [reply?.error, reply?.reason, reply?.detail?.error].find((text) => typeof text === 'string' && /^[a-z0-9_]{1,64}$/.test(text));
  return found ?? `http_${status}`;
}

function notStored(status, reply) {
  const code = errorCode(status, reply), failed = reply?.failed;
  const known = Array.isArray(failed) && failed.every(Number.isInteger);
  return new Failure(code, (status >= 400 && status < 500) || NOT_STORED.includes(code), known ? failed : undefined);
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

async function readAll(answer) {
  const parts = [];
  let size = 0;
  for await (const part of answer.body ?? []) {
    size += part.length;
    if (size > MAX_REPLY) throw new Failure('bad_reply');
    parts.push(part);
  }
  return Buffer.concat(parts).toString();
}

function checkToken(text) {
  if (typeof text !== 'string' || !/^[\x21-\x7e]+$/.test(text)) throw new TypeError('the token has characters that no token has: is there a line end?');
  return text;
}

/** Refuses to send a token in clear over a network; reports whether the address is this machine. */
function checkAddress(text) {
  const url = URL.parse ? URL.parse(text) : new URL(text);
  const local = url && ['localhost', '127.0.0.1', '[::1]'].includes(url.hostname);
  if (!url || !(url.protocol === 'https:' || (url.protocol === 'http:' && local))) {
    throw new TypeError("the gateway's address must begin with https://, or be http:// of this machine");
  }
  return local;
}
