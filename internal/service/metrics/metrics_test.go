package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
)

// sample is one line of the text format.
type sample struct {
	family, name string
	labels       map[string]string
	value        float64
}

var (
	lineForm  = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)\{(.*)\} (\S+)$`)
	labelForm = regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)`)
)

// parse reads the text format as strictly as its specification is: HELP, TYPE,
// then all samples of the family together; no family and no series twice.
func parse(t *testing.T, text []byte) (types map[string]string, samples []sample) {
	t.Helper()
	types = map[string]string{}
	helped, family, series := "", "", map[string]bool{}
	if len(text) == 0 || text[len(text)-1] != '\n' {
		t.Fatal("the text does not end with a line end")
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if rest, is := strings.CutPrefix(line, "# HELP "); is {
			helped, _, _ = strings.Cut(rest, " ")
			continue
		}
		if rest, is := strings.CutPrefix(line, "# TYPE "); is {
			f := strings.Fields(rest)
			if len(f) != 2 || f[0] != helped || types[f[0]] != "" {
				t.Fatalf("%q", line)
			}
			family, types[f[0]] = f[0], f[1]
			continue
		}
		m := lineForm.FindStringSubmatch(line)
		if m == nil || series[m[1]+m[2]] {
			t.Fatalf("not a sample, or there twice: %q", line)
		}
		series[m[1]+m[2]] = true
		s := sample{family: family, name: m[1], labels: map[string]string{}}
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(m[1], "_bucket"), "_sum"), "_count")
		if m[1] != family && (types[family] != "histogram" && types[family] != "summary" || base != family) {
			t.Fatalf("%q stands under %s", line, family)
		}
		for rest := m[2]; rest != ""; {
			l := labelForm.FindStringSubmatch(rest)
			if l == nil {
				t.Fatalf("labels of %q", line)
			}
			s.labels[l[1]], rest = l[2], rest[len(l[0]):]
		}
		var err error
		if s.value, err = strconv.ParseFloat(m[3], 64); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		samples = append(samples, s)
	}
	return types, samples
}

// value adds up the samples that have these labels.
func value(samples []sample, name string, labels ...string) (sum float64) {
	for _, s := range samples {
		fits := s.name == name
		for i := 0; fits && i < len(labels); i += 2 {
			fits = s.labels[labels[i]] == labels[i+1]
		}
		if fits {
			sum += s.value
		}
	}
	return sum
}

var (
	testRules = map[string][]events.Severity{"executed_despite_deny": {events.SeverityCritical, events.SeverityHigh}, "AH-C-001": {events.SeverityMedium}}
	ownRules  = map[string][]events.Severity{"log_recreated": {events.SeverityCritical}}
)

// everything makes a registry of all services; text may be anything.
func everything(text string) *Registry {
	r := New("admitter")
	r.Health(func() Status {
		return Status{Healthy: true, Ready: true, Active: map[string]bool{"GOV": true, "EAST": false}}
	})
	a := r.Admitter("GOV", 2048, func() int { return 3 })
	r.Ingest("GOV").Stored()
	r.Ingest("GOV").Taking(true)
	now := time.Now()
	a.Decided(now)
	a.Recorded(now)
	a.Admitted(text, events.Verdict(text), now)
	a.Admitted("aaep", events.Deny, now)
	a.Refused(text)
	a.Refused("overloaded")
	a.Dropped()
	a.Policies(7, true)
	a.Observed(2)
	a.Taking(true)
	c := r.Correlator("GOV", testRules)
	c.Read(10, 10, 1, 2, 3, 0)
	c.Undecided(now.Add(-time.Minute))
	c.Put(events.CallState("~"+text), nil)
	c.Put(events.CallOpen, nil)
	c.Put("", &events.Finding{Rule: text, Severity: events.Severity(text), Session: text, Explanation: text})
	c.Put("", &events.Finding{Rule: "executed_despite_deny", Severity: events.SeverityCritical})
	c.Put("", &events.Finding{Rule: "executed_despite_deny", Severity: events.SeverityLow})
	c.Put("", &events.Finding{Rule: "executed_despite_deny", Severity: events.SeverityInfo, Retracts: "fnd" + text})
	c.Follow(func(context.Context, uint64) (uint64, time.Time, error) { return 14, now.Add(-2 * time.Second), nil })
	u := r.Auditor("EAST", []string{"jwt"}, ownRules)
	u.Resumed(100, 100)
	u.Stored(100, []build.Built{
		{Record: evidence.Record{Seq: 101, Kind: text, Tenant: text, Session: text, Subject: text, Redactions: []evidence.Redaction{{Path: text, Detector: text}}}, Canonical: []byte("1234")},
		{Record: evidence.Record{Seq: 102, Kind: evidence.KindEvent, Redactions: []evidence.Redaction{{Detector: "jwt"}}}, Canonical: []byte("12"), Quarantine: true},
	}, now.Add(-time.Second))
	u.Checkpoint(102)
	u.Due(now.Add(-time.Minute))
	u.Found(events.Finding{Rule: text, Severity: events.Severity(text)})
	u.Found(events.Finding{Rule: "log_recreated", Severity: events.SeverityCritical})
	u.Follow(func(context.Context, uint64) (uint64, time.Time, error) { return 102, time.Time{}, nil })
	g := r.Gateway(map[string][]string{"POST /event": {"200"}}, []string{"rate_limited"}, GatewayState{
		Load:            func() GatewayLoad { return GatewayLoad{1, 64, 2, 3, 100} },
		TokensEnding:    func() (int, bool) { return 5, true },
		CertificateEnds: func() (time.Time, bool) { return now.Add(-time.Minute), true },
	})
	g.Answered(text, 200, "~"+text)
	g.Answered("POST /event", 429, "rate_limited")
	g.Admitted(text, text)
	g.Admitted("aaep", Failed)
	g.Stored(text, 1)
	g.Stored("aaep", 5)
	g.Worked(now)
	return r
}

// allFamilies lists every family.
var allFamilies = func() (list []familyDesc) {
	for _, g := range familyGroups {
		list = append(list, g.families...)
	}
	return list
}()

func TestTextFormat(t *testing.T) {
	types, samples := parse(t, everything("nonsense").Text())
	for _, d := range allFamilies {
		if d.name != descServiceUp.name && types[d.name] != string(d.kind) {
			t.Errorf("%s is %q, want %s", d.name, types[d.name], d.kind)
		}
	}
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"countersign_active", []string{"shard", "GOV"}, 1},
		{"countersign_gateway_tokens_ending", nil, 5},
		{"countersign_active", []string{"shard", "EAST"}, 0},
		{"countersign_admissions_total", []string{"protocol", "aaep", "verdict", "deny"}, 1},
		{"countersign_tenants_observed", nil, 2},
		{"countersign_admissions_total", []string{"protocol", "other", "verdict", "other"}, 1},
		{"countersign_admissions_total", nil, 2},
		{"countersign_admissions_refused_total", []string{"code", "overloaded"}, 1},
		{"countersign_admissions_refused_total", []string{"code", "other"}, 1},
		{"countersign_admissions_unanswerable_total", nil, 1},
		{"countersign_admission_seconds_count", nil, 2},
		{"countersign_admissions_inflight", nil, 3},
		{"countersign_admissions_open", []string{"shard", "GOV"}, 1},
		{"countersign_events_open", []string{"shard", "GOV"}, 1},
		{"countersign_admissions_inflight_max", nil, 2048},
		{"countersign_policy_revision", nil, 7},
		{"countersign_policy_usable", nil, 1},
		{"countersign_correlator_messages_total", []string{"shard", "GOV"}, 10},
		{"countersign_correlator_outputs_total", nil, 6},
		{"countersign_calls_total", []string{"state", "open"}, 1},
		{"countersign_findings_total", []string{"rule", "executed_despite_deny", "severity", "critical"}, 1},
		{"countersign_findings_total", []string{"rule", "executed_despite_deny"}, 2},
		{"countersign_findings_total", []string{"rule", "log_recreated", "severity", "critical"}, 1},
		{"countersign_findings_total", []string{"rule", "other", "severity", "other", "shard", "GOV"}, 1},
		{"countersign_findings_total", []string{"rule", "other", "severity", "other", "shard", "EAST"}, 1},
		{"countersign_findings_withdrawn_total", nil, 1},
		{"countersign_correlator_lag_messages", nil, 4},
		{"countersign_evidence_records_total", []string{"kind", "event"}, 1},
		{"countersign_evidence_bytes_total", nil, 6},
		{"countersign_evidence_batch_records_sum", nil, 2},
		{"countersign_evidence_batch_records_bucket", []string{"le", "1"}, 0},
		{"countersign_evidence_batch_records_bucket", []string{"le", "2"}, 1},
		{"countersign_evidence_batch_records_bucket", []string{"le", "+Inf"}, 1},
		{"countersign_evidence_insert_seconds_bucket", []string{"le", "0.5"}, 0},
		{"countersign_evidence_insert_seconds_bucket", []string{"le", "60"}, 1},
		{"countersign_evidence_redactions_total", []string{"detector", "jwt"}, 1},
		{"countersign_evidence_redactions_total", []string{"detector", "other"}, 1},
		{"countersign_evidence_quarantined_total", nil, 1},
		{"countersign_evidence_checkpoint_size", nil, 102},
		{"countersign_evidence_lag_messages", nil, 0},
		{"countersign_evidence_oldest_unaudited_seconds", nil, 0},
		{"evidence_lost_total", nil, 0},
		{"countersign_healthy", []string{"service", "admitter"}, 1},
		{"countersign_gateway_responses_total", nil, 2},
		{"countersign_gateway_refused_total", []string{"code", "rate_limited"}, 1},
		{"countersign_gateway_refused_total", []string{"code", "other"}, 1},
		{"countersign_gateway_admissions_total", []string{"protocol", "aaep", "outcome", "failed"}, 1},
		{"countersign_gateway_admissions_total", []string{"protocol", "other", "outcome", "other"}, 1},
		{"countersign_gateway_events_total", []string{"protocol", "aaep"}, 5},
		{"countersign_gateway_request_seconds_count", nil, 1},
		{"countersign_gateway_inflight", nil, 1},
		{"countersign_gateway_inflight_max", nil, 64},
		{"countersign_gateway_streams", nil, 2},
		{"countersign_gateway_aaep_subscriptions", nil, 3},
		{"countersign_gateway_streams_max", nil, 100},
	} {
		if got := value(samples, c.name, c.labels...); got != c.want {
			t.Errorf("%s%v = %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	if lag := value(samples, "countersign_correlator_lag_seconds"); lag < 2 || lag > 60 {
		t.Errorf("lag %v", lag)
	}
	if left := value(samples, "countersign_gateway_certificate_seconds_left"); left > -60 || left < -120 {
		t.Errorf("%v s are left", left)
	}
	if age := value(samples, "countersign_retention_overdue_seconds"); age < 60 || age > 120 {
		t.Errorf("overdue for %v", age)
	}
	if age := value(samples, "countersign_correlator_oldest_undecided_seconds"); age < 60 || age > 120 {
		t.Errorf("oldest undecided %v", age)
	}
	for rule, severity := range map[string]events.Severity{"AH-C-001": events.SeverityMedium, "executed_despite_deny": events.SeverityHigh} {
		if !slices.ContainsFunc(samples, func(s sample) bool {
			return s.name == "countersign_findings_total" && s.labels["rule"] == rule && s.labels["severity"] == string(severity) && s.value == 0
		}) {
			t.Errorf("%s %s has no counter: an alert would not see the first finding", rule, severity)
		}
	}
}

// Whatever a publisher sends, no label has another value than those that the code
// names, and the number of series does not grow.
func TestLabelsNeverCarryProducerBytes(t *testing.T) {
	_, clean := parse(t, everything("other").Text())
	known := map[string]bool{}
	for _, s := range clean {
		for name, v := range s.labels {
			known[name+"="+v] = true
		}
	}
	for _, text := range []string{"", "evil", "a\"} 1\nforged_total{x=\"y", "\\", "\xff\xfe", "\x00", strings.Repeat("x", 1<<16), "overloaded ", "AAEP", "émile", "ｏｐｅｎ"} {
		_, samples := parse(t, everything(text).Text())
		if len(samples) != len(clean) {
			t.Errorf("%.20q: %d series, %d without it", text, len(samples), len(clean))
		}
		for _, s := range samples {
			for name, v := range s.labels {
				if !known[name+"="+v] {
					t.Errorf("%.20q became %s=%q of %s", text, name, v, s.name)
				}
			}
		}
	}
}

func FuzzLabels(f *testing.F) {
	f.Add("evil")
	f.Add("a\"} 1\nforged_total{x=\"y")
	base := strings.Count(string(everything("other").Text()), "\n")
	f.Fuzz(func(t *testing.T, text string) {
		if slices.Contains([]string{"jwt", "AH-C-001"}, text) || testRules[text] != nil || ownRules[text] != nil || slices.Contains(refusalCodes, text) {
			t.Skip("a name of ours")
		}
		if got := strings.Count(string(everything(text).Text()), "\n"); got > base+2 { // states and kinds are names of ours, too
			t.Errorf("%d lines, %d without it", got, base)
		}
	})
}

// A service without a registry counts as usual: nothing panics.
func TestNilRegistryCounts(*testing.T) {
	var r *Registry
	a, c, u := r.Admitter("GOV", 1, nil), r.Correlator("GOV", nil), r.Auditor("GOV", nil, nil)
	g := r.Gateway(nil, nil, GatewayState{})
	g.Answered("x", 200, "x")
	g.Admitted("aaep", Failed)
	g.Stored("aaep", 1)
	g.Worked(time.Now())
	a.Decided(time.Now())
	a.Recorded(time.Now())
	a.Admitted("aaep", events.Allow, time.Now())
	a.Refused("x")
	a.Dropped()
	a.Policies(1, true)
	c.Read(1, 1, 1, 1, 1, 0)
	c.Undecided(time.Now())
	c.Put("", nil)
	u.Resumed(1, 1)
	u.Stored(0, nil, time.Now())
	u.Checkpoint(1)
	u.Found(events.Finding{})
}

func TestLost(t *testing.T) {
	built := func(seqs ...uint64) (list []build.Built) {
		for _, s := range seqs {
			list = append(list, build.Built{Record: evidence.Record{Seq: s, Kind: evidence.KindEvent}})
		}
		return list
	}
	for name, c := range map[string]struct {
		do   func(*Auditor)
		want float64
	}{
		"dense":              {func(a *Auditor) { a.Resumed(10, 10); a.Stored(10, built(11, 12), time.Now()) }, 0},
		"a gap in a batch":   {func(a *Auditor) { a.Stored(0, built(1, 2, 5), time.Now()) }, 2},
		"a gap before it":    {func(a *Auditor) { a.Stored(10, built(13), time.Now()) }, 2},
		"lost before":        {func(a *Auditor) { a.Resumed(10, 7) }, 3},
		"a row that is more": {func(a *Auditor) { a.Resumed(10, 11) }, 0},
		"an empty batch":     {func(a *Auditor) { a.Stored(10, nil, time.Now()) }, 0},
	} {
		r := New("auditor")
		c.do(r.Auditor("GOV", nil, nil))
		_, samples := parse(t, r.Text())
		if got := value(samples, "evidence_lost_total"); got != c.want {
			t.Errorf("%s: %v lost, want %v", name, got, c.want)
		}
	}
}

func TestLag(t *testing.T) {
	var l readerLag
	if _, _, known := l.refresh(); known {
		t.Error("nobody was asked")
	}
	fail, asked := false, 0
	l.setHead(func(_ context.Context, next uint64) (uint64, time.Time, error) {
		asked++
		if next != 6 {
			t.Errorf("asked for %d", next)
		}
		if fail {
			return 0, time.Time{}, errors.New("away")
		}
		return 9, time.Now().Add(-time.Hour), nil
	})
	l.done.Store(5)
	for range 3 {
		if n, age, known := l.refresh(); n != 4 || age < 3600 || !known {
			t.Errorf("%d %v %v", n, age, known)
		}
	}
	if asked != 1 {
		t.Errorf("the server was asked %d times", asked)
	}
	fail, l.at = true, time.Time{}
	if _, _, known := l.refresh(); known {
		t.Error("nothing is known while the server is away")
	}
}

// A supervisor reads from the text how much a service has not read.
func TestMessagesBehind(t *testing.T) {
	r := New("correlator")
	if n, known := MessagesBehind(r.Text()); known {
		t.Errorf("a service that reads no log is %d behind", n)
	}
	for stream, head := range map[string]uint64{"GOV": 12_345_678, "GOV2": 100} {
		c := r.Correlator(stream, testRules)
		c.Read(60, 60, 1, 2, 3, 0)
		c.Follow(func(context.Context, uint64) (uint64, time.Time, error) { return head, time.Time{}, nil })
	}
	if n, known := MessagesBehind(r.Text()); n != 12_345_658 || !known {
		t.Errorf("%d %v", n, known)
	}
	a := New("auditor")
	a.Auditor("GOV", nil, nil).Follow(func(context.Context, uint64) (uint64, time.Time, error) { return 7, time.Time{}, nil })
	if n, known := MessagesBehind(a.Text()); n != 7 || !known {
		t.Errorf("%d %v", n, known)
	}
}

func TestTwoShardsAndTwice(t *testing.T) {
	r := New("correlator")
	one := r.Correlator("GOV", testRules)
	r.Correlator("GOV2", testRules).Put(events.CallOpen, nil)
	idle := GatewayState{
		Load: func() GatewayLoad { return GatewayLoad{} }, TokensEnding: func() (int, bool) { return 0, false },
		CertificateEnds: func() (time.Time, bool) { return time.Time{}, false },
	}
	//nolint:staticcheck // SA4000: a scrape may not change what it shows
	if r.Correlator("GOV", testRules) != one || r.Auditor("EAST", nil, nil) != r.Auditor("EAST", nil, nil) || r.Admitter("GOV", 1, func() int { return 0 }) != r.Admitter("GOV", 2, func() int { return 0 }) || r.Gateway(nil, nil, idle) != r.Gateway(nil, nil, idle) {
		t.Error("the same shard has two sets of metrics")
	}
	_, samples := parse(t, r.Text())
	if value(samples, "countersign_calls_total", "shard", "GOV2") != 1 || value(samples, "countersign_calls_total", "shard", "GOV") != 0 {
		t.Error("shards are mixed up")
	}
}

func TestMerge(t *testing.T) {
	a, b := New("admitter"), New("auditor")
	a.Admitter("GOV", 1, func() int { return 0 }).Dropped()
	b.Auditor("GOV", []string{"jwt"}, nil).Checkpoint(5)
	merged := Merge(map[string][]byte{"admitter": a.Text(), "auditor": b.Text(), "correlator": nil, "odd": []byte("not a metric\n# HELP\nx 1\n")})
	types, samples := parse(t, merged)
	if types["go_goroutines"] != "gauge" || value(samples, "go_goroutines", "service", "admitter") == 0 || value(samples, "go_goroutines", "service", "auditor") == 0 {
		t.Errorf("%s", merged)
	}
	for service, want := range map[string]float64{"admitter": 1, "auditor": 1, "correlator": 0} {
		if got := value(samples, "countersign_service_up", "service", service); got != want {
			t.Errorf("%s up: %v", service, got)
		}
	}
	if value(samples, "countersign_evidence_checkpoint_size", "shard", "GOV") != 5 {
		t.Error("a sample is lost")
	}
}

func TestServeHTTP(t *testing.T) {
	w := httptest.NewRecorder()
	New("admitter").ServeHTTP(w, nil)
	if w.Code != 200 || w.Header().Get("Content-Type") != contentType {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	_, samples := parse(t, w.Body.Bytes())
	for _, name := range []string{"process_resident_memory_bytes", "process_open_fds", "go_goroutines", "go_memstats_heap_alloc_bytes", "process_start_time_seconds"} {
		if value(samples, name) <= 0 {
			t.Errorf("%s is not there", name)
		}
	}
}

// Counting and looking at the same time is no race, and nothing is missed.
func TestConcurrent(t *testing.T) {
	r := New("admitter")
	a := r.Admitter("GOV", 1, func() int { return 0 })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				a.Admitted("aaep", events.Allow, time.Now())
			}
		})
	}
	for range 20 {
		r.Text()
	}
	wg.Wait()
	_, samples := parse(t, r.Text())
	if n := value(samples, "countersign_admissions_total", "protocol", "aaep", "verdict", "allow"); n != 8000 {
		t.Errorf("%v admissions", n)
	}
}

// TestExamples: the examples of deploy/prometheus are YAML, and the alerts watch
// metrics that there are.
func TestExamples(t *testing.T) {
	rules, err := os.ReadFile("../../../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	scraped := ""
	for _, file := range []string{"alerts.yml", "prometheus.yml"} {
		var tree map[string]any
		b, err := os.ReadFile("../../../deploy/prometheus/" + file)
		scraped = string(b)
		if err == nil {
			err = yaml.Unmarshal(b, &tree)
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, alert := range strings.Split(string(rules), "- alert: ")[1:] {
		if !strings.Contains(alert, "          do: ") {
			t.Errorf("alerts.yml does not say what to do: %s", strings.SplitN(alert, "\n", 2)[0])
		}
	}
	if strings.Contains(string(rules), "node_filesystem_") && !strings.Contains(scraped, "- job_name: node\n") {
		t.Error("alerts.yml watches metrics of node_exporter, and prometheus.yml has no job for it")
	}
	for _, name := range regexp.MustCompile(`\b(?:countersign|evidence)_[a-z_]+`).FindAllString(string(rules), -1) {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if !slices.ContainsFunc(allFamilies, func(d familyDesc) bool { return d.name == name || d.name == base && d.kind == histogram }) {
			t.Errorf("alerts.yml watches %s, which does not exist", name)
		}
	}
	for _, d := range allFamilies {
		if alerts := strings.Contains(string(rules), d.name); d.alert != "" && alerts == slices.Contains(withoutAlert, d.name) {
			t.Errorf("%s says when to look: either an alert does (%t), or it is in withoutAlert", d.name, alerts)
		}
	}
}

// withoutAlert are the families that say when to look, for a person: what is too much depends on the place.
var withoutAlert = []string{
	"countersign_admissions_total", "countersign_admissions_unanswerable_total", "countersign_admission_decide_seconds", "countersign_admissions_inflight",
	"countersign_policy_revision", "countersign_policy_snapshot_age_seconds", "countersign_events_stored_total", "countersign_gateway_admissions_total", "countersign_gateway_events_total",
	"countersign_gateway_inflight", "countersign_calls_total", "countersign_correlator_open_calls", "countersign_correlator_open_calls_forgotten_total", "countersign_evidence_redactions_total",
}

func BenchmarkAdmitted(b *testing.B) {
	a := New("admitter").Admitter("GOV", 1, func() int { return 0 })
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		a.Decided(now)
		a.Recorded(now)
		a.Admitted("tool", events.Deny, now)
	}
}

func ExampleMerge() {
	fmt.Print(string(Merge(map[string][]byte{"auditor": nil})))
	// Output:
	// # HELP countersign_service_up 1 if the service answers.
	// # TYPE countersign_service_up gauge
	// countersign_service_up{service="auditor"} 0
}
