package retention

import "testing"

const classes = `
version: 1
name: acme
log: 90d
retention: summary_only
sessions:
  - {match: "med-*", retention: none}
  - {match: "med-open", retention: full_transcript, log: 24h}
  - {match: "demo-*", log: 24h}
  - {match: "demo-x", retention: hashes, keep: true}
`

func TestClasses(t *testing.T) {
	p, err := Parse("p.yaml", []byte(classes))
	if err != nil {
		t.Fatal(err)
	}
	for session, want := range map[string]Class{
		"": SummaryOnly, "x": SummaryOnly, "med-1": None, "med-open": None, "demo-1": SummaryOnly, "demo-x": Hashes,
	} {
		if got := p.Class(session); got != want {
			t.Errorf("%q: %v, want %v", session, got, want)
		}
	}
	if p.StrictestClass() != None || p.LogPeriod("med-1") != p.LogPeriod("x") || p.LogPeriod("med-open") == p.LogPeriod("x") || p.LogPeriod("demo-x") != p.LogPeriod("demo-1") {
		t.Errorf("an entry without a period, or without a class, decides about it: %v", p.StrictestClass())
	}
	plain, err := Parse("p.yaml", []byte(sample))
	if err != nil || plain.Class("demo-1") != FullTranscript || plain.StrictestClass() != FullTranscript {
		t.Errorf("without a class: %v", err)
	}
}

// A policy that cannot be read holds back at least what it held back when it could.
func TestUnreadableClassesFailClosed(t *testing.T) {
	good, bad := []byte(classes), []byte("version: 9\n")
	hashes := []byte("version: 1\nname: h\nretention: hashes\n")
	for name, tt := range map[string]struct {
		revisions [][]byte
		want      Class // of session x
		broken    bool
	}{
		"no policy":               {nil, FullTranscript, false},
		"readable":                {[][]byte{good}, SummaryOnly, false},
		"readable again":          {[][]byte{hashes, bad, good}, Hashes, false},
		"broken, readable before": {[][]byte{bad, bad, good, hashes}, None, true},
		"broken, milder before":   {[][]byte{bad, hashes, good}, Hashes, true},
		"broken from the start":   {[][]byte{bad, bad}, None, true},
		"removed":                 {[][]byte{nil, good}, FullTranscript, false},
		"broken after a removal":  {[][]byte{bad, nil, good}, FullTranscript, true},
	} {
		c := ReadClasses("acme", tt.revisions)
		if got, id := c.ClassOf("x"); got != tt.want || (c.Err() != nil) != tt.broken || id == "" {
			t.Errorf("%s: %v by %q, %v", name, got, id, c.Err())
		}
	}
}
