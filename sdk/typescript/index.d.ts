/** A JSON value that all readers read alike: no integer beyond 2^53, no NaN, no half of a surrogate pair. */
export type Json = null | boolean | number | string | Json[] | {[key: string]: Json};
export type Arguments = {[key: string]: Json};

/** A tool call that is about to run. */
export interface Call {
  readonly tool: string;
  readonly arguments: Arguments;
  readonly session: string;
  readonly callId: string;
  readonly eventId: string;
  /** Whose call it is, for policies and mandates of one agent. */
  readonly agent?: string;
  /** The W3C trace. */
  readonly traceparent?: string;
}

/** What may be done. Only allowed lets a call run; it is never true without a valid receipt. */
export interface Verdict {
  readonly decision: 'allow' | 'ask' | 'defer' | 'deny';
  /** A policy's message, or a code; empty for an allow. */
  readonly reason: string;
  readonly allowed: boolean;
  /** ask: what a reviewer must decide; defer: the same, but no approval lifts it; allow: the approval that it used. */
  readonly workflow: string;
  readonly decisionId: string;
  /** allow: of the receipt, which counts once. */
  readonly nonce: string;
  /** Of an allow: when no receipt of this allowance holds any more, in milliseconds since 1970. */
  readonly until: number;
}

export interface Wait {
  /** Milliseconds to wait for a person, if the verdict is ask. */
  wait?: number;
  /** When aborted before the tool begins, the call is refused (canceled). */
  signal?: AbortSignal;
}

/** Whose calls a guard is for: texts, or functions that give them for each call, those of an adapter from the framework's context. */
export interface GuardOptions<Context = void> extends Wait {
  /** One conversation: approvals, limits and the evidence of a call are of its session. */
  session: string | ((context: Context) => string);
  /** For policies, limits and mandates of one agent. */
  agent?: string | ((context: Context) => string);
}

/** The call that a native request is about, as the executor knows it. */
export interface NativeCall {
  readonly tool: string;
  readonly arguments?: Json;
  readonly session: string;
  readonly callId: string;
  readonly agent?: string;
  readonly traceparent?: string;
}

export interface NativeOptions {
  /** Milliseconds. Default: the client's. */
  timeout?: number;
  /** The workflow that an earlier ask gave. */
  workflow?: string;
}

/** Another way than HTTP, such as natsTransport of @countersign/sdk/nats. */
export interface Transport {
  admit(protocol: string, body: string, headers: Record<string, string>, timeout: number): Promise<{status: number; headers: {get(name: string): string | null}; text: string}>;
  /** session is that of events that have no field for it, else empty. */
  publish(protocol: string, events: string[], timeout: number, session: string): Promise<void>;
  /** Waits until a workflow is not pending, or for so many seconds. Without it the client asks again from time to time. */
  approval?(workflow: string, seconds: number, timeout: number, signal?: AbortSignal): Promise<{status: number; text: string}>;
}

export interface ClientOptions {
  /** https://…, or http:// of this machine. Not needed with transport. */
  gateway?: string;
  /** A token of the role runtime, or a function that gives the current one for each request. Not needed with transport. */
  token?: string | (() => string | Promise<string>);
  transport?: Transport;
  tenant: string;
  /** For which the token was made. */
  publisher: string;
  /** The checkpoint key, which vouches for the keys that sign receipts. */
  publicKey: string;
  /** Ids of the receipt keys that count. Without it every key does that the checkpoint key vouches for, a retired one included. */
  pinnedKeys?: Iterable<string>;
  /** Key records and retirements that are known beforehand, JSON each (the members record and retirement of the lines of `countersign keys list --json`). */
  records?: Iterable<string>;
  /** Milliseconds for one request. Default 10,000. */
  timeout?: number;
  /** Is told of a report that is not on record. Default console.error. */
  onUnreported?: (message: string) => void;
}

export class Client {
  constructor(options: ClientOptions);
  /** A client of the `countersign up` that wrote this ready file. Throws if that has ended, or if others can read the file. */
  static fromReadyFile(path: string, options?: Partial<ClientOptions>): Client;
  /**
   * Asks whether a call may run. Never rejects: a refusal, and every failure, is a Verdict that is not allowed, and as an
   * object always truthy: look at allowed. workflow: what an earlier ask for the identical call gave.
   */
  admit(call: Call, options?: Wait & {workflow?: string}): Promise<Verdict>;
  /**
   * Asks in another protocol's own words and gives its own reply, null if there is none that counts. The verdict is
   * allowed only with a valid receipt for this call, whose arguments are undefined for a protocol without.
   */
  admitNative(protocol: 'aaep' | 'aana' | 'aump' | 'tool' | 'handoff', request: object, call: NativeCall, options?: NativeOptions): Promise<{verdict: Verdict; reply: any}>;
  /**
   * Runs a tool once, with the arguments that were admitted, and reports how it ended. Rejects with Refused before it begins.
   * After an ask, the identical call (session, agent, tool and arguments) to this client uses the approval, once, under
   * whatever call id. A generator is refused (TypeError): it would run after the guard has ended.
   */
  run<T>(call: Call, tool: (args: Arguments) => T | Promise<T>, options?: Wait): Promise<T>;
  /** Runs a tool like run, under a verdict that was asked for in another protocol's words. For AAEP, whose producers report in AAEP, use admitNative. */
  runNative<T>(protocol: 'aana' | 'aump' | 'tool' | 'handoff', request: object, call: NativeCall, tool: (args: any) => T | Promise<T>, options?: NativeOptions & Wait): Promise<T>;
  /** A function that does `run` for each of its calls. */
  guard<T>(name: string, tool: (args: any) => T | Promise<T>, options: GuardOptions): (args: Arguments) => Promise<T>;
  /** Resolves once all events are stored durably; rejects with NotStored otherwise, or with NotCanonical before anything is sent. */
  publish(protocol: string, ...events: object[]): Promise<void>;
  /** Publishes events that have no field for their session, which are AUMP's. The session is printable ASCII. */
  publishIn(session: string, protocol: string, ...events: object[]): Promise<void>;
}

/** A guarded call that did not run, not even in part. */
export class Refused extends Error {
  readonly verdict: Verdict;
  /** The id of the call that did not run. */
  readonly callId: string;
}

/** Events that are not, or not certainly, on record. */
export class NotStored extends Error {
  /** Why, stable. */
  readonly code: string;
  /** Whether it is certain that those that failed are not stored. In doubt, send the same event again, with its event_id: it counts once. */
  readonly certain: boolean;
  /** The positions of those that failed, if only some did, as far as that is known. */
  readonly failed?: number[];
}

/** A receipt that permits nothing. */
export class BadReceipt extends Error {
  readonly code: string;
}

export class NotCanonical extends Error {}

/** The receipt keys for which a checkpoint key vouches. */
export class Keyring {
  constructor(publicKey: string, pinned?: Iterable<string>, records?: Iterable<string>);
  /** Adds a key record or a retirement, JSON; throws TypeError if no checkpoint key vouches for it. A retired key stays retired. */
  trust(record: string): void;
  check(
    receipt: string,
    keyRecord: string,
    want: {tenant: string; source: string; session: string; tool_call_id: string; tool: string; arguments?: Json},
    now?: number,
  ): Record<string, unknown>;
}

export function newCall(tool: string, args: Arguments, session: string, callId?: string, more?: {agent?: string; traceparent?: string}): Call;
/** The RFC 8785 form of a JSON value. */
export function canonical(value: Json): string;
