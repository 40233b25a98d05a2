package bundle

import "fmt"

const readmeHead = `Evidence of %s, exported by Countersign.

  tenant      %q
  %s
  shard       %s
  records     %d, log sequences %d to %d
  checkpoint  size %d, root %s

To verify it, offline, with nothing but this file and the checkpoint key that
its owner published:

  countersign verify --bundle THIS.zip --key CHECKPOINT.pub

Why it can be believed: records.jsonl holds one canonical JSON record a line.
Each names the hash of the one before it in its session%s
cover.jsonl holds, from left to right, the subtrees of the log's Merkle tree
that have no record of this file in them: with the records, they give the root
in checkpoint.txt, which is signed by the checkpoint key. keys.json holds the
keys that signed the decisions, vouched for by the same checkpoint key. Values
marked [redacted:...] were taken out of this copy; each has a commitment in its
record.

manifest.json, decisions.jsonl, findings.jsonl and this text are derived from
the records for convenience; nothing rests on them, and the manifest is not
signed. %s
`

const readmeSession = `That the session has no record after the last one here, only the whole
log can show. If the log began anew, records that the session has in earlier or
later incarnations of it are not here.`

const readmeRange = `Whether a sequence that is not here is another tenant's, only the whole log
can show: a record that was left out is noticed if its session has records here
before and after it, and not otherwise. Records of the pipeline itself (changes
of policies, mandates, keys) belong to no tenant and are not here.`

func renderReadme(m Manifest) string {
	of, selects, chain, limits := "one agent session", fmt.Sprintf("session     %q", m.Session), ", from the first on.", readmeSession
	if m.Session == "" {
		of, selects = "everything of one tenant between two times", fmt.Sprintf("range       %s to %s (excluded), by the log's clock", m.From, m.To)
		chain, limits = "; sessions may\nhave begun before the range and may go on after it.", readmeRange
	}
	return fmt.Sprintf(readmeHead, of, m.Tenant, selects, m.Shard, m.Records, m.Seqs[0], m.Seqs[1], m.CheckpointSize, m.CheckpointRoot, chain, limits) +
		expiredReadme(m) + readmeExtra + readmeReport
}

const readmeExtra = `
records.parquet has the records of records.jsonl that have their text, in the
same order, a row each, for programs that analyse tables; record_hash is the
hash of the text in the column record. in_force.json has the policies and mandates that decided: by
digest, with their text where readers of this file may see it.
`

const readmeReport = `
report.html is this evidence for reading: open it in a browser, it needs
nothing else. controls.json says which controls of common frameworks the
evidence bears on, what it shows of them and what it does not. Both follow from
the records; a verifier of the same version makes them again and compares.
statement.dsse.json, where it is there, is a signed in-toto statement over all
other members: it names the key of the party that handed this file out.
`

const readmeExpired = `
%d of these records have no text any more: the retention policy of their tenant
let it go. Their lines in records.jsonl begin with {"expired": and hold what is
left: the hash, which is in the tree as before, and columns, for which nothing
vouches but the subject's own form. expiries.json has the records of the log that
say which texts expired, under which policy and when, each signed by the
checkpoint key, with the proof that it is in the same tree.
`

func expiredReadme(m Manifest) string {
	if m.Expired == 0 {
		return ""
	}
	return fmt.Sprintf(readmeExpired, m.Expired)
}
