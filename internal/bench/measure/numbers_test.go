package measure

import (
	"bytes"
	"testing"

	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// A line of JSON names what was measured alone, except for the columns of a Latency, and a line of text keeps its columns apart.
func TestLines(t *testing.T) {
	for _, tc := range []struct {
		result     interface{ String() string }
		json, text string
	}{
		{Latency{What: "floor", Clients: 1, P50: 120}, `{"what":"floor","clients":1,"count":0,"per_second":0,"p50_us":120,"p99_us":0}`,
			"floor                                     1                              120us"},
		{Latency{What: "gate", Clients: 1, Count: 9, PerSecond: 50, P50: 10, P99: 20, P50Over: -3, P99Over: 4},
			`{"what":"gate","clients":1,"count":9,"per_second":50,"p50_us":10,"p99_us":20,"p50_over_admission_us":-3,"p99_over_admission_us":4}`,
			"gate                                      1          9           50       10us       20us  p50 -3us over admission  p99 +4us"},
		{Result{What: "memory", Peak: 12}, `{"what":"memory","peak_mb":12}`, "memory                                                                             12 MB"},
		{Result{What: "export", Records: 7, BundleBytes: 1 << 20, Seconds: 2, PerSecond: 3.5, CPU: 4, PeakRSS: 2 << 20},
			`{"what":"export","per_second":3.5,"records":7,"bundle_bytes":1048576,"seconds":2,"cpu_us_per_record":4,"peak_rss_bytes":2097152}`,
			"export                                                             7          4/s  1 MB of bundle  2.0 s  4.00 us of processor time  2 MB"},
	} {
		for asJSON, want := range map[bool]string{true: tc.json, false: tc.text} {
			var out bytes.Buffer
			if err := Print(ui.Stdio{Out: &out}, asJSON, tc.result); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != want+"\n" {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		}
	}
}
