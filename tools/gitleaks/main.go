// Command gitleaks-oracle compares the redaction engine with gitleaks. Given the
// engine's labelled corpus, it prints gitleaks' recall and precision on it. With
// -generate N it does the reverse: it lets gitleaks' own rules make N secrets each,
// for the engine to find. It is a module of its own so that Countersign does not
// depend on gitleaks.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/zricethezav/gitleaks/v8/cmd/generate/secrets"
	"github.com/zricethezav/gitleaks/v8/detect"
)

type sample struct {
	Kind   string `json:"kind"`
	Class  string `json:"class"`
	Secret string `json:"secret,omitempty"`
	Text   string `json:"text"`
}

type score struct{ found, missed, kept, flagged int }

func (s score) String() string {
	recall := float64(s.found) / float64(max(1, s.found+s.missed))
	precision := float64(s.found) / float64(max(1, s.found+s.flagged))
	return fmt.Sprintf("found %d, missed %d, kept %d, flagged %d: recall %.4f, precision %.4f", s.found, s.missed, s.kept, s.flagged, recall, precision)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("gitleaks-oracle", flag.ContinueOnError)
	n := flags.Int("generate", 0, "write N samples of each of gitleaks' rules to standard output instead")
	if err := flags.Parse(args); err != nil {
		return err
	}
	d, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		return err
	}
	d.MaxDecodeDepth = 2
	if *n > 0 {
		return generate(d, *n)
	}
	if flags.NArg() != 1 {
		return errors.New("usage: gitleaks-oracle [-generate N | CORPUS.jsonl] (go test -run TestCorpus ./evidence/internal/redact -args -corpus FILE writes one)")
	}
	f, err := os.Open(flags.Arg(0))
	if err != nil {
		return err
	}
	defer f.Close()
	classes, missed, flagged := map[string]*score{}, map[string]int{}, map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return err
		}
		if classes[s.Class] == nil {
			classes[s.Class] = &score{}
		}
		judge(d, s, classes[s.Class], missed, flagged)
	}
	for _, c := range slices.Sorted(maps.Keys(classes)) {
		fmt.Printf("%-8s %s\n", c, *classes[c])
	}
	fmt.Println("missed by kind: ", missed)
	fmt.Println("flagged by kind:", flagged)
	return lines.Err()
}

// generate writes what gitleaks' rules describe and gitleaks itself finds.
func generate(d *detect.Detector, n int) error {
	out := json.NewEncoder(os.Stdout)
	for _, id := range slices.Sorted(maps.Keys(d.Config.Rules)) {
		rule := d.Config.Rules[id]
		if rule.Regex == nil {
			continue // of file names
		}
		for range n {
			text := secrets.NewSecret(rule.Regex.String())
			for _, f := range d.DetectString(text) {
				if f.RuleID == id {
					if err := out.Encode(sample{Kind: id, Class: "secret", Secret: f.Secret, Text: text}); err != nil {
						return err
					}
					break
				}
			}
		}
	}
	return nil
}

// judge asks what would be left of the secret if every finding were cut out.
func judge(d *detect.Detector, s sample, c *score, missed, flagged map[string]int) {
	left, findings := s.Text, d.DetectString(s.Text)
	for _, f := range findings {
		left = strings.ReplaceAll(left, f.Secret, "*")
		left = strings.ReplaceAll(left, f.Match, "*")
	}
	switch {
	case s.Secret == "" && len(findings) == 0:
		c.kept++
	case s.Secret == "":
		c.flagged++
		flagged[s.Kind]++
	case strings.Contains(left, s.Secret):
		c.missed++
		missed[s.Kind]++
	default:
		c.found++
	}
}
