// The golden vectors, which the Go client writes (client/guard/vectors_test.go).

import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import test from 'node:test';
import {BadReceipt, canonical, Keyring} from '../index.js';

const load = (name) => JSON.parse(readFileSync(new URL('../../vectors/' + name, import.meta.url), 'utf8'));

// Texts whose fault JSON.parse hides: a value of JavaScript cannot have it.
const HIDDEN = ['{"a":1,"a":2}', '9007199254740993', '0.10000000000000000001'];

test('canonical forms', () => {
  for (const {in: text, out} of load('canonical.json')) {
    if (HIDDEN.includes(text)) continue;
    const write = () => canonical(JSON.parse(text));
    if (out === undefined) assert.throws(write, undefined, text);
    else assert.equal(write(), out);
  }
});

test('what is no JSON', () => {
  for (const value of [undefined, NaN, Infinity, 1n, () => 1, Symbol('x'), new Date(0), new Map(), {a: undefined}, [undefined], {toJSON: () => 1}, '\ud800', 2 ** 53 + 2, Array(1)]) {
    assert.throws(() => canonical(value));
  }
});

test('receipts', () => {
  const {public_key: publicKey, cases} = load('receipts.json');
  for (const c of cases) {
    const args = c.call.arguments === null ? undefined : JSON.parse(c.call.arguments);
    let code = '';
    try {
      new Keyring(publicKey).check(c.receipt, c.key, {...c.call, arguments: args}, Date.parse(c.now));
    } catch (e) {
      assert.ok(e instanceof BadReceipt, `${c.name}: ${e}`);
      code = e.code;
    }
    assert.equal(code, c.code, c.name);
  }
  assert.throws(() => new Keyring('nonsense'));
  assert.throws(() => new Keyring(''));
});
