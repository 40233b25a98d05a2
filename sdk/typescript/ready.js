// The ready file that `countersign up` writes, with what its clients need.

import {closeSync, fstatSync, openSync, readFileSync, readlinkSync} from 'node:fs';

/**
 * Reads the file. It throws if others can read it, or if its `countersign up` has ended: another program may listen at
 * the address then, and must not get the token.
 */
export function readReadyFile(path) {
  const ready = readPrivate(path);
  if (isGone(ready.owner)) throw new Error(`${path} was left behind: its countersign up no longer runs`);
  return ready;
}

function readPrivate(path) {
  const file = openSync(path, 'r');
  try {
    if (fstatSync(file).mode & 0o077) throw new Error(`${path} can be read by others: chmod 600 it`);
    return JSON.parse(readFileSync(file, 'utf8'));
  } finally {
    closeSync(file);
  }
}

/** Tells whether the owner has certainly ended; on another machine, or in another namespace, that is unknown. */
function isGone(owner) {
  const here = machine();
  return Boolean(owner && here) && owner.machine === here && startOf(owner.pid) !== owner.started;
}

/** The id of this boot with the namespace of process ids; empty if it is unknown. */
function machine() {
  try {
    return `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()} ${readlinkSync('/proc/self/ns/pid')}`;
  } catch {
    return '';
  }
}

/** When a process started, in ticks after boot; empty if it does not run. */
function startOf(pid) {
  try {
    const stat = readFileSync(`/proc/${Number(pid)}/stat`, 'latin1');
    const fields = stat.slice(stat.lastIndexOf(')') + 1).trim().split(' '); // the program's name before it may have blanks
    return fields[0] === 'Z' ? '' : fields[19];
  } catch {
    return '';
  }
}
