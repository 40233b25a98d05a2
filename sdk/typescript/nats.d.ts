import type {NatsConnection} from '@nats-io/transport-node';
import type {Transport} from './index.js';

/**
 * A transport over a connection of yours, whose user is the publisher's. A user that may subscribe only below a prefix
 * needs it as inboxPrefix of connect. prefix: the first token of the subjects, default gov.
 */
export function natsTransport(connection: NatsConnection, options: {tenant: string; publisher: string; prefix?: string}): Transport;
