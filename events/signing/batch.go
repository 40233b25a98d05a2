package signing

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// TypeBatch is the type of a signature over several records at once. What it
// covers is the text of batchText.
const TypeBatch = "countersign-batch+jws"

// MaxBatch is how many records one signature covers at most. It bounds the
// length of a proof, which is as many hashes as the number has binary digits.
const MaxBatch = 1024

// SignRecords signs records, each of which is verified by itself, and gives the
// value of the header that each of them carries. One record has an ordinary
// detached signature of TypeRecord. Several share one of TypeBatch, which costs
// as much as one, over the root of the RFC 6962 tree of them:
//
//	<detached JWS> "~" <index> "~" <size> "~" <base64url of the inclusion proof's hashes>
func (k PrivateKey) SignRecords(records [][]byte) ([]string, error) {
	switch {
	case len(records) == 0:
		return nil, nil
	case len(records) > MaxBatch:
		return nil, fmt.Errorf("signing: %d records at once, at most %d", len(records), MaxBatch)
	case len(records) == 1:
		token, err := k.SignDetached(TypeRecord, records[0])
		return []string{token}, err
	}
	levels := treeLevels(records)
	token, err := k.SignDetached(TypeBatch, batchText(len(records), levels[len(levels)-1][0]))
	if err != nil {
		return nil, err
	}
	values := make([]string, len(records))
	for i := range records {
		values[i] = token + "~" + strconv.Itoa(i) + "~" + strconv.Itoa(len(records)) + "~" + base64.RawURLEncoding.EncodeToString(inclusionProof(levels, i))
	}
	return values, nil
}

type treeHash = [sha256.Size]byte

// batchText is what the signature on a batch covers.
func batchText(size int, root treeHash) []byte {
	text := strconv.AppendInt(append(make([]byte, 0, 80), "countersign/batch/v1\n"...), int64(size), 10)
	return append(base64.StdEncoding.AppendEncode(append(text, '\n'), root[:]), '\n')
}

// leafHash and node are the hashes of RFC 6962 section 2.1.
func leafHash(record []byte) treeHash {
	var room [2048]byte
	return sha256.Sum256(append(append(room[:0], 0), record...))
}

func nodeHash(left, right treeHash) treeHash {
	var b [1 + 2*sha256.Size]byte
	b[0] = 1
	copy(b[1:], left[:])
	copy(b[1+sha256.Size:], right[:])
	return sha256.Sum256(b[:])
}

// treeLevels gives the levels of the tree from the leaves to the root. A last node
// without a sibling stands for itself one level up.
func treeLevels(records [][]byte) [][]treeHash {
	level := make([]treeHash, len(records))
	for i, r := range records {
		level[i] = leafHash(r)
	}
	levels := [][]treeHash{level}
	for len(level) > 1 {
		next := make([]treeHash, 0, (len(level)+1)/2)
		for i := 0; i+1 < len(level); i += 2 {
			next = append(next, nodeHash(level[i], level[i+1]))
		}
		if len(level)%2 == 1 {
			next = append(next, level[len(level)-1])
		}
		level = next
		levels = append(levels, level)
	}
	return levels
}

// inclusionProof joins the hashes that lead from a leaf to the root.
func inclusionProof(levels [][]treeHash, i int) (path []byte) {
	for _, level := range levels[:len(levels)-1] {
		if sibling := i ^ 1; sibling < len(level) {
			path = append(path, level[sibling][:]...)
		}
		i /= 2
	}
	return path
}

// rootFromProof computes the root that a proof leads to (RFC 9162 section 2.1.3.2).
func rootFromProof(record []byte, index, size int, path []byte) (root treeHash, ok bool) {
	root, last := leafHash(record), size-1
	for ; len(path) > 0; path = path[sha256.Size:] {
		if last == 0 {
			return root, false
		}
		sibling := treeHash(path[:sha256.Size])
		if index%2 == 1 || index == last {
			root = nodeHash(sibling, root)
			for index%2 == 0 && index != 0 {
				index, last = index/2, last/2
			}
		} else {
			root = nodeHash(root, sibling)
		}
		index, last = index/2, last/2
	}
	return root, last == 0
}

// batchShare is one record's part of a batch's signature.
type batchShare struct {
	token       string
	index, size int
	path        []byte
}

// readShare takes a header value apart. batched is false for an ordinary
// signature. There is one spelling of every share.
func readShare(value string) (s batchShare, batched, ok bool) {
	token, rest, batched := strings.Cut(value, "~")
	if !batched {
		return batchShare{}, false, true
	}
	index, rest, cut := strings.Cut(rest, "~")
	size, path, again := strings.Cut(rest, "~")
	if !cut || !again || strings.Contains(path, "~") {
		return batchShare{}, true, false
	}
	var indexFine, sizeFine, pathFine bool
	s.token = token
	s.index, indexFine = smallNumber(index)
	s.size, sizeFine = smallNumber(size)
	s.path, pathFine = decodeSegment(path)
	return s, true, indexFine && sizeFine && pathFine && s.size > 1 && s.size <= MaxBatch && s.index < s.size && len(s.path)%sha256.Size == 0
}

// smallNumber reads a number that is written without a sign or leading zeros.
func smallNumber(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == text
}

// VerifyRecord checks what SignRecords put on a record and gives the id of the
// key.
func (ks KeySet) VerifyRecord(value string, record []byte) (kid string, err error) {
	return (&RecordVerifier{Keys: ks}).Verify(value, record)
}

// RecordVerifier verifies many records, and a signature that several of them
// share only once while they come one after the other. It must not be used by
// two goroutines at once. Keys may be replaced or changed at any time.
type RecordVerifier struct {
	Keys KeySet

	token, kid string // of the batch that verified last
	size       int
	root       treeHash
}

// Verify checks what SignRecords put on a record and gives the id of the key.
func (v *RecordVerifier) Verify(value string, record []byte) (kid string, err error) {
	s, batched, ok := readShare(value)
	switch {
	case !ok || record == nil:
		return "", ErrMalformed
	case !batched:
		return v.Keys.VerifyDetached(TypeRecord, value, record)
	}
	root, ok := rootFromProof(record, s.index, s.size, s.path)
	if !ok {
		return "", ErrMalformed
	}
	if _, known := v.Keys[v.kid]; known && s.token == v.token && s.size == v.size && root == v.root {
		return v.kid, nil
	}
	if kid, err = v.Keys.VerifyDetached(TypeBatch, s.token, batchText(s.size, root)); err == nil {
		v.token, v.size, v.root, v.kid = s.token, s.size, root, kid
	}
	return kid, err
}
