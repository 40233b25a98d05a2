package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/cli"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// invoke runs the program on a command line and gives what it printed.
func invoke(t *testing.T, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = cli.Program().Run(t.Context(), args, ui.Stdio{In: strings.NewReader(stdin), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

func aumpDocument(name string) string {
	return filepath.Join("..", "..", "schemas", "testdata", "corpus", "aump", name)
}

func TestMandateValidate(t *testing.T) {
	courier, event := aumpDocument("mandate/valid/minimal.json"), aumpDocument("evidence-event/valid/minimal.json")
	const noon = "--now=2026-11-20T12:00:00Z"
	for _, tc := range []struct {
		args, out string // out is a part of what is printed
		code      int
	}{
		{"mandate " + courier + " " + noon, `{"valid":true,"reason_codes":[],"errors":[]}` + "\n", ui.ExitOK},
		{"mandate " + courier + " --now=2026-11-21T08:00:00Z", `{"valid":false,"reason_codes":["mandate_expired"],"errors":["mandate_expired at $.expires_at"]}`, ui.ExitFailed},
		{"profile " + aumpDocument("profile/valid/full.json"), `{"valid":true,`, ui.ExitOK},
		{"profile " + courier, `"reason_codes":["schema_invalid"]`, ui.ExitFailed},
		{"evidence " + event, `{"valid":true,`, ui.ExitOK},
		{"evidence " + event + " --mandate " + courier, `"reason_codes":["evidence_mandate_hash_mismatch"]`, ui.ExitFailed},
		{"mcp_tool " + courier, `"reason_codes":["bridge_invalid"]`, ui.ExitFailed},
		{"mandate -", `{"valid":false,"reason_codes":["schema_invalid"],`, ui.ExitFailed},
		{"contract " + courier, "", ui.ExitUsage},
		{"mandate " + courier + " --mandate " + courier, "", ui.ExitUsage},
		{"evidence - --mandate -", "", ui.ExitUsage},
		{"mandate /nowhere/x.json", "", ui.ExitUsage},
		{"evidence " + event + " --mandate /nowhere/x.json", "", ui.ExitUsage},
		{"mandate " + courier + " --now=today", "", ui.ExitUsage},
		{"mandate", "", ui.ExitUsage},
	} {
		code, out, errs := invoke(t, "null", append([]string{"mandate", "validate"}, strings.Fields(tc.args)...)...)
		if code != tc.code || !strings.Contains(out, tc.out) || (code == ui.ExitUsage) != (out == "") || (code == ui.ExitUsage) != (errs != "") {
			t.Errorf("%s: exit %d, %s%s", tc.args, code, out, errs)
		}
	}
}

func TestEvaluateUnderMandates(t *testing.T) {
	dir := t.TempDir()
	b, err := os.ReadFile(aumpDocument("mandate/valid/minimal.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "courier.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	const hash = "sha256-53b2d5d1bba0fa4d6f2ec0c33d8d2b80b1f2f5d6a7d5b8b1b0e0c0f0a0d0e0f0"
	request := func(hash string) string {
		return `{"aump":{"version":"0.1.0","type":"action_evaluation_request"},"mandate_ref":{"id":"aump_mnd_courier_01"` + hash +
			`,"version":"0.1.0"},"proposed_action":{"type":"book_courier","summary":"Book."}}`
	}
	for _, tc := range []struct{ in, args, want string }{
		{request(`,"hash":"` + hash + `"`), "", `{"verdict":"deny",` + "mandate_not_found"},
		{request(`,"hash":"` + hash + `"`), "--mandates " + dir, `{"verdict":"deny",` + "mandate_not_found"},
		{request(""), "--mandates " + dir, `{"verdict":"deny",` + "$.mandate_ref.hash"},
		{request(""), "--profile reference-sdk --mandates " + dir, `{"verdict":"allow",` + `"decision":"allowed"`},
	} {
		args := append(strings.Fields("evaluate --protocol aump --now 2026-11-20T12:00:00Z "+tc.args), "-")
		code, out, errs := invoke(t, tc.in, args...)
		verdict, part, _ := strings.Cut(tc.want, ",")
		if code != ui.ExitOK || !strings.HasPrefix(out, verdict) || !strings.Contains(out, part) {
			t.Errorf("%s: exit %d %s%s", tc.args, code, out, errs)
		}
	}
	if code, out, _ := invoke(t, request(""), "evaluate", "--protocol", "aump", "--mandates", filepath.Join(dir, "none"), "-"); code != ui.ExitUsage || out != "" {
		t.Errorf("a folder that is not there: exit %d %s", code, out)
	}
}
