// The RFC 8785 form of JSON values: the text that digests of arguments are made of.

/** A value that has no RFC 8785 form, or that two readers could read differently. */
export class NotCanonical extends Error {}

/**
 * @param {unknown} value a JSON value
 * @returns {string}
 */
export function canonical(value) {
  switch (typeof value) {
    case 'boolean':
      return String(value);
    case 'number':
      return number(value);
    case 'string':
      return text(value);
    case 'object':
      if (value === null) return 'null';
      if (Array.isArray(value)) return '[' + Array.from(value, canonical).join(',') + ']';
      return object(value);
    default:
      throw new NotCanonical(`a ${typeof value} is no JSON value`);
  }
}

function number(n) {
  if (!Number.isFinite(n)) throw new NotCanonical('a number that JSON cannot say');
  if (Number.isInteger(n) && Math.abs(n) > 2 ** 53) throw new NotCanonical('an integer beyond 2^53: send it as a text');
  return n === 0 ? '0' : String(n); // RFC 8785 takes ECMAScript's texts
}

function text(s) {
  if (!s.isWellFormed()) throw new NotCanonical('half of a surrogate pair');
  return JSON.stringify(s);
}

function object(o) {
  const prototype = Object.getPrototypeOf(o);
  if (prototype !== Object.prototype && prototype !== null) throw new NotCanonical('an object with a class is no JSON value');
  if (typeof o.toJSON === 'function') throw new NotCanonical('an object with toJSON is no JSON value');
  const members = Object.keys(o).sort().map((k) => text(k) + ':' + canonical(o[k])); // by UTF-16 units
  return '{' + members.join(',') + '}';
}
