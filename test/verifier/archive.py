"""The one form of the ZIP: docs/evidence-format.md, section 5. Nothing is copied:
members are views of the file."""

import struct
import zlib

from signed import Bad

DATE = 1 << 5 | 1  # 1 January 1980
MAX = 0xFFFFFFFF  # four bytes are too few: look at the extension
STEP = 1 << 20


def extension(*values):
    return struct.pack("<HH%dQ" % len(values), 1, 8 * len(values), *values) if values else b""


def common(version, name, size, crc):
    """What a local header and the directory say alike."""
    return struct.pack("<HHHHHIIIH", version, 0, 0, 0, DATE, crc, min(size, MAX), min(size, MAX), len(name))


def local(name, size, crc):
    field = extension(size, size) if size >= MAX else b""
    return b"PK\x03\x04" + common(45 if field else 20, name, size, crc) + struct.pack("<H", len(field)) + name.encode() + field


def directory(name, size, crc, offset):
    field = extension(*([size, size] if size >= MAX else []) + ([offset] if offset >= MAX else []))
    version = 45 if field else 20
    return (b"PK\x01\x02" + struct.pack("<H", version) + common(version, name, size, crc) + struct.pack("<H", len(field)) + bytes(10)
            + struct.pack("<I", min(offset, MAX)) + name.encode() + field)


def end(entries, at):
    """What stands behind the members."""
    out = b"".join(directory(*e) for e in entries)
    size, n = len(out), len(entries)
    if at >= MAX:
        out += struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, n, n, size, at) + struct.pack("<4sIQI", b"PK\x06\x07", 0, at + size, 1)
    return out + struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, n, n, size, min(at, MAX), 0)


class Member:
    def __init__(self, name, raw, head, start, size):
        self.name, self.raw, self.head, self.start, self.size = name, raw, head, start, size

    def chunks(self):
        for at in range(self.start, self.start + self.size, STEP):
            yield self.raw[at:min(at + STEP, self.start + self.size)]

    def digest(self, algorithm):
        for chunk in self.chunks():
            algorithm.update(chunk)
        return algorithm.hexdigest()

    def crc(self):
        crc = 0
        for chunk in self.chunks():
            crc = zlib.crc32(chunk, crc)
        return crc

    def all(self):
        return bytes(self.raw[self.start:self.start + self.size])

    def lines(self):
        """Each line without its line feed; the last one must have it."""
        at, stop = self.start, self.start + self.size
        while at < stop:
            to = self.raw.find(b"\n", at, stop)
            if to < 0:
                raise Bad("the last line is not ended")
            yield bytes(self.raw[at:to])
            at = to + 1


def unpack(raw):
    """The members of a file, in order, and where they end."""
    members, at = [], 0
    while raw[at:at + 4] == b"PK\x03\x04":
        if at + 30 > len(raw):
            raise Bad("archive: cut short")
        size, length, extra = struct.unpack_from("<IHH", raw, at + 22)
        start = at + 30 + length + extra
        if size == MAX and extra == 20:
            size = struct.unpack_from("<Q", raw, at + 30 + length + 4)[0]
        name = bytes(raw[at + 30:at + 30 + length]).decode("utf-8", "replace")
        if start + size > len(raw):
            raise Bad("archive: %s is cut short" % name)
        members.append(Member(name, raw, at, start, size))
        at = start + size
    return members, at


def differs(raw, members, at):
    """Where a file differs from its one form, as (member, offset); None if nowhere."""
    entries = []
    for m in members:
        crc = m.crc()
        want, got = local(m.name, m.size, crc), bytes(raw[m.head:m.start])
        if want != got:
            return m.name, m.head + first(want, got)
        entries.append((m.name, m.size, crc, m.head))
    want, got = end(entries, at), bytes(raw[at:])
    return None if want == got else ("archive", at + first(want, got))


def first(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
