package redact

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// The corpus is made, not collected: a generator with fixed seeds puts made-up
// values into the places where they are found in practice. Positives hold a value
// that must not stay, negatives look alike and must stay as they are. Some
// positives cannot be found by looking at them (kind hard_…); they count all the
// same.

// sample is one line of the corpus.
type sample struct {
	Kind   string `json:"kind"`
	Class  string `json:"class"` // secret, personal
	Secret string `json:"secret,omitempty"`
	Text   string `json:"text"`
}

// dice makes the values of one kind.
type dice struct{ *rand.Rand }

const (
	lowers  = "abcdefghijklmnopqrstuvwxyz"
	uppers  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	tens    = "0123456789"
	hexes   = tens + "abcdef"
	alnums  = tens + lowers + uppers
	urlSafe = alnums + "-_"
)

func (d dice) from(alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[d.IntN(len(alphabet))]
	}
	return string(b)
}

func (d dice) one(list ...string) string { return list[d.IntN(len(list))] }

// token is an alphabet's text with a digit, a small and a capital letter in it, as
// far as it has them.
func (d dice) token(alphabet string, n int) string {
	for {
		s := d.from(alphabet, n)
		ok := true
		for _, set := range []string{lowers, uppers, tens} {
			ok = ok && (!strings.ContainsAny(alphabet, set) || strings.ContainsAny(s, set))
		}
		if ok && strings.Trim(s, "-_") == s {
			return s
		}
	}
}

// places are where a secret stands; %s is the value.
var places = []string{
	"%s", "the key is %s", "use %s for this", "key=%s", `{"value":"%s","n":1}`, "export TOKEN=%s", "- name: x\n  value: %s\n", "2026-11-20T06:42:00Z INFO client using %s to connect",
	"curl -H 'X-Auth: %s' https://api.example.invalid/v1", "client = New(\"%s\")", "https://api.example.invalid/?k=%s&page=2", "# old: %s", "(%s)", "args: [--verbose, %s]", "<k>%s</k>",
}

// nouns are what names and sentences are made of.
var nouns = strings.Fields("invoice report customer shipment table river garden window engine market silver yellow morning paper bridge planet coffee")

func (d dice) word() string { return nouns[d.IntN(len(nouns))] }

// corpus makes all samples, always the same ones.
func corpus() (positives, negatives []sample) {
	seed := uint64(0)
	fill := func(out *[]sample, kinds []kind, n int) {
		for _, k := range kinds {
			seed++
			d := dice{rand.New(rand.NewPCG(seed, 2026))}
			count := n
			if k.count > 0 {
				count = k.count
			}
			for range count {
				s := sample{Kind: k.name, Class: k.class}
				v := k.value(d)
				in := "%s"
				if len(k.places) > 0 {
					in = d.one(k.places...)
				}
				s.Text = strings.Replace(in, "%s", v, 1)
				if out == &positives {
					if s.Secret = v; k.part != nil {
						s.Secret = k.part(v)
					}
				}
				*out = append(*out, s)
			}
		}
	}
	fill(&positives, secretKinds, 40)
	fill(&positives, personalKinds, 30)
	fill(&negatives, lookalikes, 50)
	return positives, negatives
}

// kind is one row of the tables of the corpus.
type kind struct {
	name, class string
	value       func(d dice) string
	places      []string            // where it stands; none: alone
	part        func(string) string // what of the value must not stay; nil: all of it
	count       int                 // how many; 0: as many as of the others
}

// score is how the engine does on the corpus.
type score struct{ Found, Missed, Kept, Flagged int }

func (s score) recall() float64 { return float64(s.Found) / float64(s.Found+s.Missed) }
func (s score) precision() float64 {
	return float64(s.Found) / float64(s.Found+s.Flagged)
}

var writeCorpus = flag.String("corpus", "", "write the corpus, one JSON object a line, to this file")

// TestCorpus pins how good the detectors are. The floors are what they reach; a
// change that finds less must say so here and in docs/adr/0011-an-own-redaction-engine.md.
func TestCorpus(t *testing.T) {
	positives, negatives := corpus()
	if len(positives) < 2000 || len(negatives) < 2000 {
		t.Fatalf("%d positives, %d negatives", len(positives), len(negatives))
	}
	if *writeCorpus != "" {
		writeSamples(t, *writeCorpus, positives, negatives)
	}
	byClass := map[string]*score{"secret": {}, "personal": {}}
	missed, flagged := map[string]int{}, map[string]int{}
	for _, s := range positives {
		if out, _ := maskText(s.Text); strings.Contains(out, s.Secret) {
			byClass[s.Class].Missed++
			if missed[s.Kind]++; missed[s.Kind] == 1 {
				t.Logf("missed %s: %.120q", s.Kind, s.Text)
			}
		} else {
			byClass[s.Class].Found++
		}
	}
	for _, s := range negatives {
		if out, spans := maskText(s.Text); out != s.Text {
			byClass[s.Class].Flagged++
			if flagged[s.Kind]++; flagged[s.Kind] <= 2 {
				t.Logf("flagged %s: %.120q as %v", s.Kind, s.Text, spans)
			}
		} else {
			byClass[s.Class].Kept++
		}
	}
	t.Logf("missed by kind: %v; flagged by kind: %v", missed, flagged)
	for _, c := range []struct {
		class             string
		recall, precision float64
	}{{"secret", 0.958, 0.998}, {"personal", 0.933, 0.998}} {
		s := byClass[c.class]
		t.Logf("%-8s %+v recall %.4f precision %.4f", c.class, *s, s.recall(), s.precision())
		if s.recall() < c.recall || s.precision() < c.precision {
			t.Errorf("%s: recall %.4f, precision %.4f; the floors are %.4f and %.4f", c.class, s.recall(), s.precision(), c.recall, c.precision)
		}
	}
}

var foreignCorpus = flag.String("foreign", "", "a corpus that somebody else made, one JSON object a line")

// TestForeignCorpus says what the engine finds of secrets that another program's
// rules made (tools/gitleaks, -generate).
func TestForeignCorpus(t *testing.T) {
	if *foreignCorpus == "" {
		t.Skip("give one with -foreign FILE")
	}
	f, err := os.Open(*foreignCorpus)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	found, all, missed := 0, 0, map[string]int{}
	for d := json.NewDecoder(f); d.More(); all++ {
		var s sample
		if err := d.Decode(&s); err != nil {
			t.Fatal(err)
		}
		if out, _ := maskText(s.Text); strings.Contains(out, s.Secret) {
			if missed[s.Kind]++; missed[s.Kind] == 1 {
				t.Logf("missed %s: %.160q", s.Kind, s.Text)
			}
			continue
		}
		found++
	}
	t.Logf("found %d of %d (%.4f); missed by kind: %v", found, all, float64(found)/float64(all), missed)
}

func writeSamples(t *testing.T, file string, lists ...[]sample) {
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	enc := json.NewEncoder(f)
	enc.SetEscapeHTML(false)
	for _, list := range lists {
		for _, s := range list {
			if err := enc.Encode(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("corpus written to", file)
}
