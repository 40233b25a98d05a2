"""AES-256-GCM decryption (FIPS 197, SP 800-38D), in plain Python, for one key."""

import hmac


def _sbox():
    box, p, q = [0] * 256, 1, 1
    while True:
        p ^= (p << 1) & 0xFF ^ (0x1B if p & 0x80 else 0)
        q ^= q << 1
        q ^= q << 2
        q ^= q << 4
        q &= 0xFF
        if q & 0x80:
            q ^= 0x09
        x = q
        for shift in range(1, 5):
            x ^= (q << shift | q >> 8 - shift) & 0xFF
        box[p] = x ^ 0x63
        if p == 1:
            break
    box[0] = 0x63
    return box


SBOX = _sbox()


def _double(b):
    return b << 1 ^ (0x11B if b & 0x80 else 0)


def _schedule(key):
    words, rcon = [list(key[i:i + 4]) for i in range(0, 32, 4)], 1
    while len(words) < 60:
        w = list(words[-1])
        if len(words) % 8 == 0:
            w = [SBOX[b] for b in w[1:] + w[:1]]
            w[0] ^= rcon
            rcon = _double(rcon)
        elif len(words) % 8 == 4:
            w = [SBOX[b] for b in w]
        words.append([a ^ b for a, b in zip(words[-8], w)])
    return [sum(words[i:i + 4], []) for i in range(0, 60, 4)]


def _encrypt(schedule, block):
    s = [a ^ b for a, b in zip(block, schedule[0])]
    for n, key in enumerate(schedule[1:], 1):
        s = [SBOX[s[(i + 4 * (i % 4)) % 16]] for i in range(16)]
        if n < 14:
            out = []
            for c in range(0, 16, 4):
                a, total = s[c:c + 4], s[c] ^ s[c + 1] ^ s[c + 2] ^ s[c + 3]
                out += [a[i] ^ total ^ _double(a[i] ^ a[(i + 1) % 4]) for i in range(4)]
            s = out
        s = [a ^ b for a, b in zip(s, key)]
    return bytes(s)


def _times(x, y):
    z = 0
    for i in range(127, -1, -1):
        if x >> i & 1:
            z ^= y
        y = y >> 1 ^ (0xE1 << 120 if y & 1 else 0)
    return z


def open_gcm(key, nonce, sealed, additional):
    """The plain text, None if the tag does not fit. The nonce has 12 bytes."""
    schedule, text, tag = _schedule(key), sealed[:-16], sealed[-16:]
    h, y = int.from_bytes(_encrypt(schedule, bytes(16)), "big"), 0
    lengths = (8 * len(additional)).to_bytes(8, "big") + (8 * len(text)).to_bytes(8, "big")
    for part in (additional, text, lengths):
        for i in range(0, len(part), 16):
            y = _times(y ^ int.from_bytes(part[i:i + 16].ljust(16, b"\0"), "big"), h)
    mask = _encrypt(schedule, nonce + b"\0\0\0\1")
    if not hmac.compare_digest(bytes(a ^ b for a, b in zip(y.to_bytes(16, "big"), mask)), tag):
        return None
    out = bytearray()
    for i in range(0, len(text), 16):
        block = _encrypt(schedule, nonce + (i // 16 + 2).to_bytes(4, "big"))
        out += bytes(a ^ b for a, b in zip(text[i:i + 16], block))
    return bytes(out)
