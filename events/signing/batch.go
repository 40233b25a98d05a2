package signing

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// TypeBatch is the type of a signature over several records at once. It covers the text of
// batchText.
const TypeBatch = "countersign-batch+jws"

// MaxBatch is the maximum number of records of one signature. It bounds the length of a proof,
// which is logarithmic in it.
const MaxBatch = 1024

// SignRecords signs records so that each can be verified alone, and returns each record's
// header value. One record gets an ordinary detached signature of TypeRecord. Several records
// share one of TypeBatch, at the cost of one signature, over the root of their RFC 6962 tree:
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

// batchText is the text that the signature of a batch covers.
func batchText(size int, root tlog.Hash) []byte {
	text := strconv.AppendInt(append(make([]byte, 0, 80), "countersign/batch/v1\n"...), int64(size), 10)
	return append(base64.StdEncoding.AppendEncode(append(text, '\n'), root[:]), '\n')
}

// treeLevels returns the levels of the tree from the leaves to the root. A last node without a
// sibling moves up one level unchanged.
func treeLevels(records [][]byte) [][]tlog.Hash {
	level := make([]tlog.Hash, len(records))
	for i, r := range records {
		level[i] = tlog.RecordHash(r)
	}
	levels := [][]tlog.Hash{level}
	for len(level) > 1 {
		next := make([]tlog.Hash, 0, (len(level)+1)/2)
		for i := 0; i+1 < len(level); i += 2 {
			next = append(next, tlog.NodeHash(level[i], level[i+1]))
		}
		if len(level)%2 == 1 {
			next = append(next, level[len(level)-1])
		}
		level = next
		levels = append(levels, level)
	}
	return levels
}

// inclusionProof concatenates the hashes on the path from a leaf to the root.
func inclusionProof(levels [][]tlog.Hash, i int) (path []byte) {
	for _, level := range levels[:len(levels)-1] {
		if sibling := i ^ 1; sibling < len(level) {
			path = append(path, level[sibling][:]...)
		}
		i /= 2
	}
	return path
}

// rootFromProof computes the root from a proof (RFC 9162 section 2.1.3.2).
func rootFromProof(record []byte, index, size int, path []byte) (root tlog.Hash, ok bool) {
	root, last := tlog.RecordHash(record), size-1
	for ; len(path) > 0; path = path[tlog.HashSize:] {
		if last == 0 {
			return root, false
		}
		sibling := tlog.Hash(path[:tlog.HashSize])
		if index%2 == 1 || index == last {
			root = tlog.NodeHash(sibling, root)
			for index%2 == 0 && index != 0 {
				index, last = index/2, last/2
			}
		} else {
			root = tlog.NodeHash(root, sibling)
		}
		index, last = index/2, last/2
	}
	return root, last == 0
}

// batchShare is one record's share of a batch's signature.
type batchShare struct {
	token       string
	index, size int
	path        []byte
}

// readShare parses a header value. batched is false for an ordinary signature. Every share has
// only one spelling.
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
	return s, true, indexFine && sizeFine && pathFine && s.size > 1 && s.size <= MaxBatch && s.index < s.size && len(s.path)%tlog.HashSize == 0
}

// smallNumber reads a number without a sign or leading zeros.
func smallNumber(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == text
}

// VerifyRecord verifies a header value of SignRecords and returns the key id.
func (ks KeySet) VerifyRecord(value string, record []byte) (kid string, err error) {
	return (&RecordVerifier{Keys: ks}).Verify(value, record)
}

// RecordVerifier verifies many records. A signature that consecutive records share is verified
// only once. It must not be used by several goroutines at once. Keys may be replaced or changed
// at any time.
type RecordVerifier struct {
	Keys KeySet

	token, kid string // of the last verified batch
	size       int
	root       tlog.Hash
}

// Verify verifies a header value of SignRecords and returns the key id.
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
