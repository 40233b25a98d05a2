// Requests and events by NATS, over a connection of @nats-io/transport-node.

import {createHash} from 'node:crypto';
import {headers as newHeaders, NoRespondersError, RequestError, TimeoutError} from '@nats-io/transport-node';
import {Failure, MAX_REPLY} from './transport.js';

export function natsTransport(connection, {tenant, publisher, prefix = 'gov'}) {
  if (!tenant || !publisher) throw new TypeError('tenant and publisher are needed');
  return {
    async admit(protocol, body, more, timeout) {
      const answer = await request(connection, [prefix, 'admit', token(tenant), token(protocol)].join('.'), body, more, timeout);
      const refused = answer.headers?.get('Nats-Service-Error-Code');
      const status = refused ? Number(refused) || 502 : 200;
      return {status: refused && status === 200 ? 502 : status, headers: {get: (name) => answer.headers?.get(name) || null}, text: text(answer)};
    },

    async publish(protocol, events, timeout, session) {
      for (const [n, event] of events.entries()) {
        try {
          const subject = [prefix, 'events', token(tenant), token(publisher), token(protocol), ...route(protocol, JSON.parse(event), session)].join('.');
          checkStored(text(await request(connection, subject, event, {'content-type': 'application/json'}, timeout)));
        } catch (e) {
          if (!(e instanceof Failure)) throw e;
          throw new Failure(e.message, e.certain, n > 0 ? [...events.keys()].slice(n) : undefined); // those before are stored, those behind were not sent
        }
      }
    },
  };
}

async function request(connection, subject, body, more, timeout) {
  try {
    const headers = newHeaders();
    for (const [name, value] of Object.entries(more)) headers.set(name, value);
    return await connection.request(subject, body, {headers, timeout});
  } catch (e) {
    if (e instanceof TimeoutError) throw new Failure('timeout');
    if (e instanceof NoRespondersError || (e instanceof RequestError && e.isNoResponders())) throw new Failure('unavailable', true);
    throw new Failure('not_reachable');
  }
}

function text(answer) {
  if (answer.data.length > MAX_REPLY) throw new Failure('bad_reply');
  return new TextDecoder().decode(answer.data);
}

// Where an event's session and type stand, by the protocols that have events. AUMP's have no session: the sender names it.
const ROUTES = {
  agenthook: (event) => [event.session_id, event.event_type],
  aaep: (event) => [event.session_id, String(event.type ?? '').replace(/^aaep:(?=agent\.)/, '')],
  aump: (event, session) => [session, event.event_type],
};

/** The end of an event's subject: its session and its type, which has one or several tokens. */
function route(protocol, event, named) {
  if (!Object.hasOwn(ROUTES, protocol)) throw new Failure('not_found', true);
  const [session, said] = ROUTES[protocol](event, named).map((value) => String(value ?? ''));
  const tokens = said.split('.').map(token);
  const readable = said !== '' && said !== 'request' && tokens.length <= 8;
  return [token(session), ...(readable ? tokens : ['unknown'])];
}

/** A text as one token of a subject. */
function token(value) {
  if (value === '') return '~';
  const escaped = /^[A-Za-z0-9_-]+$/.test(value) ? value : '~' + Buffer.from(value).toString('base64url');
  return escaped.length > 64 ? '~h' + createHash('sha256').update(value).digest('hex') : escaped;
}

/** What the ingest's refusals are over HTTP, by its err_code; the others are not_stored. */
const REFUSALS = {10054: 'request_too_large', 10991: 'rate_limited', 10992: 'forbidden'};

function checkStored(acknowledgement) {
  let ack;
  try {
    ack = JSON.parse(acknowledgement);
  } catch {
    throw new Failure('in_doubt');
  }
  if (ack?.error) throw new Failure(REFUSALS[ack.error.err_code] ?? 'not_stored', true);
  if (!ack || ack.duplicate || typeof ack.stream !== 'string' || ack.stream === '' || !(ack.seq > 0)) throw new Failure('in_doubt');
}
