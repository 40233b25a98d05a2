"""Merkle trees: RFC 6962 hashes, verified as in RFC 9162."""

import hashlib


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def leaf(data):
    return sha(b"\x00", data)


def node(left, right):
    return sha(b"\x01", left, right)


def root(leaves):
    """The root over leaf hashes."""
    if not leaves:
        return sha()
    if len(leaves) == 1:
        return leaves[0]
    k = 1 << (len(leaves) - 1).bit_length() - 1
    return node(root(leaves[:k]), root(leaves[k:]))


def climb(index, size, leaf_hash, path):
    """The root that an inclusion proof leads to (RFC 9162, 2.1.3.2), or None."""
    if not 0 <= index < size:
        return None
    fn, sn, r = index, size - 1, leaf_hash
    for p in path:
        if sn == 0:
            return None
        if fn & 1 or fn == sn:
            r = node(p, r)
            while fn & 1 == 0 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = node(r, p)
        fn, sn = fn >> 1, sn >> 1
    return r if sn == 0 else None


def consistent(first, first_root, second, second_root, path):
    """Whether a tree is the beginning of another (RFC 9162, 2.1.4.2)."""
    if first == 0:
        return first_root == sha()
    if first > second:
        return False
    if first == second:
        return not path and first_root == second_root
    if first & (first - 1) == 0:
        path = [first_root] + list(path)
    if not path:
        return False
    fn, sn = first - 1, second - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    fr = sr = path[0]
    for c in path[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            fr, sr = node(c, fr), node(c, sr)
            while fn & 1 == 0 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = node(sr, c)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and fr == first_root and sr == second_root


class Tree:
    """A tree that grows from left to right: the roots of its largest complete
    subtrees."""

    def __init__(self):
        self.size, self.peaks = 0, []

    def append(self, level, top):
        """Appends a complete subtree of 1 << level leaves; False where none can stand."""
        if not 0 <= level <= 52 or self.size & ((1 << level) - 1):
            return False
        at = level
        while self.size >> at & 1:
            top, at = node(self.peaks.pop(), top), at + 1
        self.peaks.append(top)
        self.size += 1 << level
        return True

    def root(self):
        if not self.peaks:
            return sha()
        top = self.peaks[-1]
        for left in reversed(self.peaks[:-1]):
            top = node(left, top)
        return top
