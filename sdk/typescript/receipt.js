// Receipts: what an executor checks before it runs a tool. docs/security.md describes them.

import {createHash, createHmac, createPublicKey, timingSafeEqual, verify} from 'node:crypto';
import {canonical, NotCanonical} from './canonical.js';

const LEEWAY = 30_000; // milliseconds by which this clock may be behind the admitter's
const MAX_TOKEN = 16 << 10;
const MAX_RECORD = 64 << 10;
const CHECKPOINT_KEY = 1; // the type byte of a checkpoint key

/** A receipt that permits nothing. code is stable: it is the one of the Go client. */
export class BadReceipt extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** The receipt keys for which a checkpoint key vouches. */
export class Keyring {
  #vouchers;
  #pinned;
  #keys = new Map();
  #retired = new Set();

  /**
   * @param {string} publicKey checkpoint.pub; while it is being replaced, both keys, one a line
   * @param {Iterable<string>} [pinned] ids of the only receipt keys that count
   * @param {Iterable<string>} [records] key records and retirements that are known beforehand, see trust
   */
  constructor(publicKey, pinned, records = []) {
    this.#pinned = pinned == null ? undefined : new Set(pinned);
    if (typeof publicKey !== 'string') throw new TypeError('the public key is needed: the text of checkpoint.pub');
    this.#vouchers = publicKey.split(/\s+/).filter(Boolean).map(readVerifier);
    if (this.#vouchers.length === 0) throw new TypeError('there is no public key');
    for (const record of records) this.trust(record);
  }

  /**
   * Adds a key record or a retirement, JSON. A retired key stays retired, in any order of the records. Throws TypeError
   * if no checkpoint key vouches for the record.
   */
  trust(record) {
    if (!this.#retire(record) && !this.#learn(record)) throw new TypeError('no checkpoint key that is trusted here vouches for this record');
  }

  /**
   * Returns the claims of a receipt that permits exactly this call now; throws BadReceipt otherwise.
   * arguments is undefined for a protocol without arguments.
   */
  check(receipt, keyRecord, want, now = Date.now()) {
    if (!receipt) throw new BadReceipt('receipt_missing', 'there is no receipt');
    if (keyRecord) this.#learn(keyRecord);
    const claims = this.#open(receipt);
    checkCall(claims, want);
    checkArguments(claims, want.arguments);
    if (claims.verdict !== 'allow') throw new BadReceipt('receipt_not_allow', "the receipt's verdict is no allow");
    checkTime(claims, now);
    return claims;
  }

  /** Retires a key, if a checkpoint key vouches for the retirement; reports whether it does. */
  #retire(record) {
    if (record.length > MAX_RECORD) return false;
    let r;
    try {
      r = JSON.parse(record);
      instant(r.retired_at);
    } catch {
      return false;
    }
    const text = `countersign/key-retired/v1\n${r.use} ${r.kid} ${r.retired_at}\n`;
    if (r.use !== 'receipt' || !/^[0-9a-f]{16}$/.test(r.kid) || typeof r.vouch !== 'string') return false;
    if (!this.#vouchers.some((v) => signedNote(v, r.vouch, text))) return false;
    this.#retired.add(r.kid);
    return true;
  }

  /** Keeps a key, if a checkpoint key vouches for it; reports whether it does. */
  #learn(record) {
    if (record.length > MAX_RECORD) return false;
    let r, raw;
    try {
      r = JSON.parse(record);
      raw = base64url(r.public_key);
    } catch {
      return false;
    }
    const kid = createHash('sha256').update(raw).digest('hex').slice(0, 16);
    const text = `countersign/key/v1\n${r.use} ${r.kid} ${r.alg} ${r.public_key}\n`;
    const wellFormed = raw.length === 32 && r.use === 'receipt' && r.alg === 'EdDSA' && r.kid === kid && typeof r.vouch === 'string';
    if (!wellFormed || !this.#vouchers.some((v) => signedNote(v, r.vouch, text))) return false;
    if (!this.#pinned || this.#pinned.has(kid)) this.#keys.set(kid, ed25519(raw));
    return true;
  }

  /** Checks the signature and the form of a receipt. */
  #open(receipt) {
    const malformed = new BadReceipt('receipt_malformed', 'this is no receipt');
    const parts = receipt.split('.');
    if (receipt.length > MAX_TOKEN || parts.length !== 3) throw malformed;
    let kid, body, signature;
    try {
      const header = base64url(parts[0]).toString();
      ({kid} = JSON.parse(header));
      if (header !== canonical({alg: 'EdDSA', kid, typ: 'countersign-receipt+jwt'})) throw malformed;
      body = new TextDecoder('utf-8', {fatal: true}).decode(base64url(parts[1]));
      signature = base64url(parts[2]);
    } catch {
      throw malformed;
    }
    const key = this.#keys.get(kid);
    if (!key) throw new BadReceipt('receipt_key_unknown', 'no trusted checkpoint key vouches for the key that signed it');
    if (!verify(null, Buffer.from(`${parts[0]}.${parts[1]}`), key, signature)) throw new BadReceipt('receipt_signature_invalid', 'the signature does not match');
    const claims = readClaims(body);
    if (!claims) throw malformed;
    if (this.#retired.has(kid)) throw new BadReceipt('receipt_key_retired', 'the key that signed it was retired; ask again');
    return claims;
  }
}

/** Reads a key of signed notes: name, key id and Ed25519 public key. */
function readVerifier(text) {
  const [name, id, ...rest] = text.split('+');
  const raw = Buffer.from(rest.join('+'), 'base64');
  const hash = createHash('sha256').update(Buffer.concat([Buffer.from(name + '\n'), raw])).digest().subarray(0, 4);
  if (raw.length !== 33 || raw[0] !== CHECKPOINT_KEY || raw.toString('base64') !== rest.join('+') || hash.toString('hex') !== id) {
    throw new TypeError('the public key is no checkpoint key: want name+id+key');
  }
  return {name, id: hash, key: ed25519(raw.subarray(1))};
}

/** Reports whether a note has this text and a signature of this key. */
function signedNote(verifier, note, text) {
  const at = note.lastIndexOf('\n\n');
  if (at < 0 || note.slice(0, at + 1) !== text) return false;
  for (const line of note.slice(at + 2).split('\n')) {
    const m = /^— ([^ +]+) (\S+)$/.exec(line);
    if (!m || m[1] !== verifier.name) continue;
    const raw = Buffer.from(m[2], 'base64');
    if (raw.length === 68 && raw.subarray(0, 4).equals(verifier.id)) return verify(null, Buffer.from(text), verifier.key, raw.subarray(4));
  }
  return false;
}

const NEEDED = ['decision_id', 'tenant', 'source', 'nonce', 'verdict', 'issued_at', 'expires_at'];
const TEXTS = [...NEEDED, 'session', 'tool_call_id', 'tool', 'args_salt', 'args_hash', 'use_until', 'mode'];
const CLAIMS = [...TEXTS, 'v', 'policy', 'mandate'];
const SALT_SIZE = 16;

/** Returns the claims of a receipt, or undefined if they are not in their one form. */
function readClaims(body) {
  try {
    const claims = JSON.parse(body);
    return canonical(claims) === body && isWellFormed(claims) ? claims : undefined;
  } catch {
    return undefined; // not canonical
  }
}

/** Reports whether claims are those of a receipt (invalidReason in Go). */
function isWellFormed(c) {
  const names = Object.keys(c);
  if (c.v !== 1 || !NEEDED.every((n) => names.includes(n)) || !names.every((n) => CLAIMS.includes(n))) return false;
  if (!names.filter((n) => TEXTS.includes(n)).every((n) => typeof c[n] === 'string' && c[n] !== '')) return false;
  const lifetime = instant(c.expires_at) - instant(c.issued_at);
  if (!['allow', 'ask', 'defer', 'deny'].includes(c.verdict) || lifetime < 1000 || lifetime > 24 * 3600_000) return false;
  if ('mode' in c && c.mode !== 'observe') return false;
  if ('use_until' in c && instant(c.use_until) < instant(c.expires_at)) return false;
  if ('args_salt' in c !== 'args_hash' in c) return false;
  return !('args_salt' in c) || base64url(c.args_salt).length === SALT_SIZE;
}

const SAME = [
  ['tenant', 'receipt_other_tenant'],
  ['source', 'receipt_other_source'],
  ['session', 'receipt_other_session'],
  ['tool_call_id', 'receipt_other_tool_call'],
  ['tool', 'receipt_other_tool'],
];

function checkCall(claims, want) {
  for (const [name, code] of SAME) {
    if ((claims[name] ?? '') !== want[name]) throw new BadReceipt(code, `the receipt is of another ${name}`);
  }
}

function checkArguments(claims, args) {
  const salt = claims.args_salt ?? '';
  const hash = claims.args_hash ?? '';
  if (args === undefined && hash === '') return;
  if (args === undefined) throw new BadReceipt('receipt_other_arguments', 'the receipt binds arguments, and the call has none');
  if (hash === '') throw new BadReceipt('receipt_binds_no_arguments', 'the receipt binds no arguments, and the call has some');
  let want;
  try {
    want = 'salted-sha256:' + createHmac('sha256', base64url(salt)).update(canonical(args)).digest('hex');
  } catch {
    throw new BadReceipt('receipt_other_arguments', 'the arguments have no digest');
  }
  const a = Buffer.from(want);
  const b = Buffer.from(String(hash));
  if (a.length !== b.length || !timingSafeEqual(a, b)) throw new BadReceipt('receipt_other_arguments', 'the receipt is of other arguments');
}

function checkTime(claims, now) {
  const issued = instant(claims.issued_at);
  const expires = instant(claims.expires_at);
  if (now + LEEWAY < issued) throw new BadReceipt('receipt_not_yet_valid', 'the receipt does not hold yet');
  if (now >= expires) throw new BadReceipt('receipt_expired', 'the receipt has expired');
}

/** When no receipt of an allowance holds any more, in milliseconds since 1970: it may have several. */
export function useUntil(claims) {
  return instant(claims.use_until ?? claims.expires_at);
}

/** Reads an RFC 3339 time in UTC; digits below a millisecond are dropped. */
function instant(text) {
  const m = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z$/.exec(String(text));
  const time = m ? Date.parse(`${m[1]}.${(m[2] ?? '').padEnd(3, '0').slice(0, 3)}Z`) : NaN;
  if (Number.isNaN(time) || new Date(time).toISOString().slice(0, 19) !== m[1]) throw new BadReceipt('receipt_malformed', 'the receipt does not say when it holds');
  return time;
}

/** Decodes unpadded base64url in its one spelling. */
function base64url(text) {
  const raw = Buffer.from(text, 'base64url');
  if (raw.toString('base64url') !== text) throw new NotCanonical('not base64url in its one spelling');
  return raw;
}

function ed25519(raw) {
  return createPublicKey({key: {kty: 'OKP', crv: 'Ed25519', x: raw.toString('base64url')}, format: 'jwk'});
}
