package admission

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/policy/names"
	"github.com/countersign-dev/countersign/events"
)

// attacks is the index: every way in which an admission gate was bypassed in the
// field, or may be here, and the tests that hold it. A test of another package is
// named after the package's folder.
var attacks = []struct {
	attack string
	tests  []string
}{
	// Bypassed in the field.
	{"approved by tool name instead of by arguments", []string{"TestBypassApprovedByToolNameInsteadOfArguments", "TestBypassApprovedByToolNameAlone",
		"admission/approval TestKeysWithoutArguments", "admission/aioc TestBypassApprovedByToolNameInsteadOfArguments", "test TestApproval"}},
	{"arguments changed between approval and execution", []string{"TestBypassArgumentsChangedAfterApproval", "TestBypassApprovalStretched",
		"admission/aioc TestBypassArgumentsChangedAfterAllow", "client/guard TestGuardRefuses", "correlation TestRules", "test TestFindings"}},
	{"verdict replayed for another call or session", []string{"TestBypassVerdictReplayed", "admission/receipt TestVerify", "client/guard TestGuardRunsOnce", "test TestAttackVerdictReplayed"}},
	{"tool_call_id reused", []string{"TestAttackCallIDReused", "admission/aump/mandate TestAllowancesStayWithinTheBudget", "correlation TestRules", "test TestFindings"}},
	{"denied tool executed anyway", []string{"TestBypassDeniedToolExecutedWithItsReceipt", "correlation TestRules", "test TestFindings", "test TestForgedDecision"}},
	{"approval with no authenticated approver", []string{"admission/approval TestResolveRefuses", "internal/service/admitter TestResolveTrustsOnlyTheServer",
		"test TestAttackForbiddenSubjects"}},
	{"approver = requester", []string{"admission/approval TestResolveRefuses", "internal/service/admitter TestResolveTrustsOnlyTheServer", "test TestBypassRequesterApprovesItself"}},
	{"fail-open when no subscriber answers", []string{"client TestAdmitWithoutAnAnswer", "client TestZeroVerdictIsDeny", "test TestClientWithoutAdmitter"}},
	{"empty or misspelt policy directory", []string{"TestBypassEmptyOrMisspeltPolicyDirectory", "admission/aioc TestBypassEmptyOrMisspeltPolicyDirectory",
		"admission/policy TestLoadDir", "test TestUnusablePolicies"}},
	{"absent, empty or null operand", []string{"TestBypassAbsentEmptyOrNullOperand", "TestEveryMutationOfEveryProtocol", "admission/policy TestAbsentValuesMatchNoEntry",
		"admission/policy TestOperands"}},
	{"homoglyphs, NUL, case in tool names", []string{"TestBypassHomoglyphsNULAndCaseInToolNames", "TestAttackDeceptiveNamesOfEveryProtocol",
		"admission/policy TestDeceptiveToolNamesAreDeniedWhateverMatches", "test TestToolCatalogue"}},
	{"numbers that round to the same float", []string{"TestBypassNumbersThatRoundToTheSameFloat", "TestBadInputOfEveryProtocol", "TestUnknownWordsOfEveryProtocol"}},
	{"verdict changed after it was hashed", []string{"TestAttackVerdictChangedAfterItWasSigned", "admission/receipt TestForgedReceipts", "correlation TestForged",
		"evidence/verify TestAnyChangedByteIsFound", "test TestForgedDecision", "test TestTampering"}},
	{"denials not logged", []string{"TestAttackEveryDenialCanBeRecorded", "internal/service/admitter TestBadRequestsAreDeniedNativelyAndRecorded",
		"internal/service/admitter TestRequestThatTheLogCannotHold", "test TestBadRequests", "test TestAttackDenialsLeaveNoRecord"}},
	{"denial texts that tell the attacker the rule", []string{"TestBypassDenialTextTellsTheRule", "TestAttackDenialTellsNothing", "admission/aioc TestRuleNamesAreInNoReply"}},
	{"hash input joined with a separator", []string{"TestAttackSeparatorsInHashedFields", "admission/policy TestCounterKeys", "admission/approval TestKeys",
		"evidence/build TestCommitmentIsInjective"}},

	// Approvals.
	{"one approval used twice, through two admitters at once", []string{"internal/service/admitter TestApprovalIsUsedOnce", "admission/approval TestConsumeOnlyOnce"}},
	{"an approval of session A used in B", []string{"TestBypassApprovalStretched", "TestAttackSessionsThatLookAlike"}},
	{"a publisher invents metadata.approval", []string{"TestBypassPublisherApprovesItself", "TestBypassPublisherClaimsAnApproval", "test TestBypassRequesterApprovesItself"}},
	{"a reviewer of another tenant, or of the same name in another account", []string{"internal/service/admitter TestWhoMayNotReview", "internal/service/admitter TestResolveTrustsOnlyTheServer"}},
	{"the preview differs from what runs", []string{"admission/approval TestPreviewDigest", "admission/approval TestPreviewWithholdsEverything", "TestAttackPreviewForged"}},
	{"workflow ids guessed", []string{"TestAttackWorkflowGuessed", "TestBypassPublisherClaimsAnApproval"}},
	{"an approval after the policies changed", []string{"TestBypassApprovalStretched", "internal/service/admitter TestPoliciesChangedMeanwhile"}},
	{"an approval turns a deny into an allow", []string{"TestBypassApprovalOfADeny", "TestApprovalsNeverLoosenADeny"}},
	{"races for a workflow in the bucket", []string{"internal/service/admitter TestReviewersRace", "internal/service/admitter TestApprovalIsUsedOnce", "internal/service/admitter TestApprovalStepIsUndone"}},
	{"a reviewer's answer aimed at the log", []string{"internal/service/admitter TestResolveTrustsOnlyTheServer", "test TestBypassResolveReplyAimedAtTheLog"}},

	// Mandates, money, limits.
	{"a mandate of another tenant", []string{"admission/aump/mandate TestStoreKeepsTenantsApart", "TestAttackMandateOfAnotherTenant"}},
	{"negative, huge and overflowing amounts, currencies in another case", []string{"TestUnknownWordsOfEveryProtocol", "admission/aump/mandate TestReserve"}},
	{"an amount left out so that no budget counts", []string{"TestAttackAmountLeftOut", "TestManyEvaluators"}},
	{"budgets overspent by many at once", []string{"admission/aump/mandate TestAllowancesStayWithinTheBudget", "internal/service/admitter TestNoOverspending", "test TestAttackMoneyInParallel"}},
	{"budgets freed by the end of another call", []string{"admission/aump/mandate TestEndings", "internal/service/admitter TestEndsOfOtherCalls", "test TestAttackMoneyFreedByAnotherCallsEnd"}},
	{"one call through two protocols", []string{"internal/service/admitter TestAttackTwoProtocolsOneBudget", "internal/service/admitter TestAttackTwoProtocolsOneApproval"}},
	{"limits emptied by retries, denials and reports", []string{"internal/service/admitter TestAttackLimitWindow"}},
	{"receipts of one allowance used several times", []string{"client/guard TestGuardUsesAnAllowanceOnce", "internal/service/admitter TestReceiptsOfOneAllowance"}},
	{"money released by a forged outcome, or run twice for one reservation", []string{"admission/aump/mandate TestEndings", "test TestAttackMoneySpentTwice"}},
	{"the ledger flooded", []string{"admission/aump/mandate TestLedgerIsBounded"}},
	{"limits stretched by separators in names, or by bursts", []string{"TestAttackSeparatorsInHashedFields", "admission/policy TestCounterKeys",
		"internal/service/admitter/tally TestTallyNeverExceedsUnderConcurrency", "internal/service/admitter TestLimitHoldsInABurstAndAcrossRestarts"}},

	// The catalogue, confirmations, keys, transport.
	{"an alias shadows another tool's canonical name", []string{"admission/publisher TestConflicts"}},
	{"a confirmation replayed, for another call, too late, from another publisher", []string{"admission/aaep/confirm TestStandings", "admission/aaep/confirm TestAcceptedForThisOnly", "admission/aaep/confirm TestRepliers",
		"internal/service/admitter TestConfirmationIsUsedOnce",
		"internal/service/admitter TestConfirmationRace", "test TestConfirmations"}},
	{"a reviewer confirms in the user's place", []string{"TestBypassReviewerConfirmsForTheUser"}},
	{"a trace event forged", []string{"correlation TestTraceEvents", "test TestGateTraces"}},
	{"a receipt of a retired key", []string{"client/guard TestGuardRefuses", "correlation TestRetiredKey", "test TestKeyRetirement", "test TestRetiredKeyForges"}},
	{"a batch signature's proof of another record or index", []string{"TestAttackVerdictChangedAfterItWasSigned", "events/signing TestBatchRefusals"}},
	{"a receipt used twice, in two processes", []string{"client/guard TestGuardRunsOnce", "client/guard TestDirectory", "client/guard TestSharedMemory"}},
	{"headers in another case, twice, or not UTF-8", []string{"TestAttackHeaderSmuggling", "TestAttackSessionsThatLookAlike", "internal/service/admitter TestCopiesHaveTheHeadersThatDecided",
		"test TestAttackHeaderSmuggling"}},
	{"Nats-Request-Info supplied by the client", []string{"internal/service/admitter TestIdentityIsTheServersWord", "streams TestAttackForgedRequestInfo", "test TestAttackForgedIdentity"}},
	{"a request that leaves no room for its record", []string{"internal/service/admitter TestRequestThatTheLogCannotHold", "test TestAttackDenialsLeaveNoRecord"}},
}

var testName = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\) \{`)

// Every attack has its tests, and they are there.
func TestEveryAttackHasItsTest(t *testing.T) {
	known := map[string]string{}
	for _, a := range attacks {
		if len(a.tests) == 0 {
			t.Errorf("%s: no test", a.attack)
		}
		for _, name := range a.tests {
			dir, test, elsewhere := strings.Cut(name, " ")
			if !elsewhere {
				dir, test = "admission", name
			}
			if _, read := known[dir]; !read {
				known[dir] = " " + strings.Join(testsIn(t, filepath.Join("..", filepath.FromSlash(dir))), " ") + " "
			}
			if !strings.Contains(known[dir], " "+test+" ") {
				t.Errorf("%s: there is no %s in %s", a.attack, test, dir)
			}
		}
	}
}

func testsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testName.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}

// A signed decision says what it said when it was signed: alone, and as one of a
// batch in which another one says what the attacker wants.
func TestAttackVerdictChangedAfterItWasSigned(t *testing.T) {
	key, keys := signingKeys(t)
	var list [][]byte
	for _, rule := range []string{"deny no: true", "allow ok: true", "ask hm: true"} {
		record, err := events.Encode(Decide(request(agenthook.Name, preToolUse), rules(t, rule), inputs()).Decision)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, record)
	}
	for n := 1; n <= len(list); n++ {
		signatures, err := key.SignRecords(list[:n])
		if err != nil {
			t.Fatal(err)
		}
		for i, record := range list[:n] {
			if _, err := keys.VerifyRecord(signatures[i], record); err != nil {
				t.Fatal(err)
			}
			for _, forged := range [][]byte{
				bytes.Replace(record, []byte(`"deny"`), []byte(`"allow"`), 1), bytes.Replace(record, []byte(`"allow"`), []byte(`"deny"`), 1),
				append(bytes.Clone(record), ' '), bytes.Replace(record, []byte("acme"), []byte("evil"), 1),
			} {
				if _, err := keys.VerifyRecord(signatures[i], forged); err == nil && !bytes.Equal(forged, record) {
					t.Errorf("record %d of %d was changed and verifies: %s", i, n, forged)
				}
			}
			for j, other := range list[:n] {
				if _, err := keys.VerifyRecord(signatures[i], other); err == nil && j != i {
					t.Errorf("the signature on record %d of %d verifies for record %d", i, n, j)
				}
			}
		}
	}
}

// Asking again under one call id is deciding anew, by the arguments that are asked
// about; a receipt of the first answer is none for the second.
func TestAttackCallIDReused(t *testing.T) {
	snap := rules(t, `allow in: args.to == "a@example.com"`)
	if out := Decide(request(agenthook.Name, preToolUse), snap, inputs()); verify(t, out, about(), noon) != nil {
		t.Fatal(codes(out))
	}
	again := edit(t, preToolUse, "a@example.com", "evil@example.com")
	if out := Decide(request(agenthook.Name, again), snap, inputs()); out.Decision.Verdict != events.Deny {
		t.Error(codes(out))
	}
}

// Every denial leaves a record that can be kept, with a reason and the source of the request.
func TestAttackEveryDenialCanBeRecorded(t *testing.T) {
	stranger, without := inputs(), inputs()
	stranger.KnownTenant, without.Nonce = false, ""
	nobody, long := request(agenthook.Name, preToolUse), request(aaep.Name, toolInvoked)
	nobody.Source = ""
	long.Header = map[string][]string{events.HeaderSession: {strings.Repeat("s", 9000)}}
	for name, c := range map[string]struct {
		req  Request
		snap *Config
		in   Inputs
	}{
		"unknown tenant":    {request(agenthook.Name, preToolUse), allowAll(t), stranger},
		"unknown source":    {nobody, allowAll(t), inputs()},
		"unknown protocol":  {request("telnet", preToolUse), allowAll(t), inputs()},
		"no randomness":     {request(agenthook.Name, preToolUse), allowAll(t), without},
		"no policy":         {request(agenthook.Name, preToolUse), nil, inputs()},
		"broken policies":   {request(agenthook.Name, preToolUse), &Config{PolicyErr: errors.New("p.yaml:1")}, inputs()},
		"no rule":           {request(agenthook.Name, preToolUse), rules(t, "allow ok: false"), inputs()},
		"a rule":            {request(agenthook.Name, preToolUse), rules(t, "deny no: true"), inputs()},
		"not JSON":          {request(agenthook.Name, "\x00\xff"), allowAll(t), inputs()},
		"a header too long": {long, allowAll(t), inputs()},
	} {
		t.Run(name, func(t *testing.T) {
			out := Decide(c.req, c.snap, c.in)
			d := out.Decision
			record, err := events.Encode(d)
			if err != nil || d.Verdict != events.Deny || len(d.Reasons) == 0 || d.Tenant != c.req.Tenant || d.Source != c.req.Source || d.RequestDigest == "" {
				t.Fatalf("%v %s", err, record)
			}
			if again, err := events.DecodeRecord[events.Decision](record); err != nil || again.Reasons[0] != d.Reasons[0] {
				t.Errorf("%v %s", err, record)
			}
		})
	}
}

// A denial says neither which rule denied nor what it looks at, in whatever
// protocol. AAEP's reply is the decision record, which names the rule by
// agreement, and nothing of what it says.
func TestAttackDenialTellsNothing(t *testing.T) {
	m := courierMandate(t)
	snap := gates(t, "verdict: deny, reason: never")
	for _, p := range proposals(m) {
		out := p.decide(p.body, snap, m)
		body, err := out.Reply()
		if err != nil || out.Decision.Verdict != events.Deny {
			t.Fatalf("%s: %v", codes(out), err)
		}
		for _, word := range []string{"secret-rule", "1 < 2", "when", "match"} {
			if strings.Contains(string(body), word) && !(p.protocol == aaep.Name && word == "secret-rule") {
				t.Errorf("%s: the reply says %q: %s", p.protocol, word, body)
			}
		}
	}
}

// Names that look like others are denied in every protocol that has names.
func TestAttackDeceptiveNamesOfEveryProtocol(t *testing.T) {
	m := courierMandate(t)
	snap := anything(t)
	for _, p := range proposals(m) {
		for _, odd := range []string{`\u0000`, `\u200b`, `\u202e`, `\u0430`, `\uff41`, `\n`, `\ufeff`, `\u00ad`} {
			body := edit(t, p.body, `"`+p.tool+`"`, `"`+p.tool+odd+`"`)
			out := p.decide(body, snap, m)
			if out.Decision.Verdict != events.Deny {
				t.Errorf("%s: %s%s is %s", p.protocol, p.tool, odd, codes(out))
			}
			sound(t, p, out)
		}
	}
	if !names.ValidTool("send_mail") {
		t.Error("an honest name is none")
	}
}

// Another tenant's mandate is none: the store is asked for the asker's tenant.
func TestAttackMandateOfAnotherTenant(t *testing.T) {
	m := courierMandate(t)
	r, in := bookingUnder(m)
	r.Tenant = "globex"
	in.Mandates.Mandates = of{"acme", known{m}}
	if out := Decide(r, EvaluatorsOnly(), in); out.Decision.Verdict != events.Deny || !strings.Contains(codes(out), "mandate_not_found") || out.Consumption.Spend != nil {
		t.Error(codes(out))
	}
	r.Tenant = "acme"
	if out := Decide(r, EvaluatorsOnly(), in); out.Decision.Verdict != events.Allow {
		t.Error(codes(out))
	}
	if got := fmt.Sprint(in.Mandates.Find("acme", "aump_mnd_../x", "")); got != "<nil>" {
		t.Error(got)
	}
}

// An action without an amount costs nothing, by the specification. A tenant can tighten that
// with a policy, or by binding the tool to its arguments in the catalogue.
func TestAttackAmountLeftOut(t *testing.T) {
	m := courierMandate(t)
	r, in := bookingUnder(m, `,"amount":{"currency":"EUR","total_minor":1500}`, "")
	if out := Decide(r, EvaluatorsOnly(), in); out.Decision.Verdict != events.Allow || out.Consumption.Spend != nil {
		t.Errorf("%s %+v", codes(out), out.Consumption.Spend)
	}
	snap := rules(t, "allow ok: true", "deny amount_missing: protocol == 'aump' && !has(args.amount)")
	if out := Decide(r, snap, in); out.Decision.Verdict != events.Deny {
		t.Error(codes(out))
	}
	full, in := bookingUnder(m)
	if out := Decide(full, snap, in); out.Decision.Verdict != events.Allow || out.Consumption.Spend == nil || out.Consumption.Spend.Amount != 1500 {
		t.Error(codes(out))
	}
}
