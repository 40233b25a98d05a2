package reference

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// attack is something that was tried, what holds it, and the tests that repeat it. A name that ends in …
// stands for all tests that begin like it; one with a slash is a folder.
type attack struct {
	what, heldBy string
	tests        []string
}

// attacks are the attacks by what they aim at.
var attacks = []struct {
	aim  string
	list []attack
}{
	{"The way into the log", []attack{
		{"a foreign reply subject", "an account per user; answers only to `_R_.…`",
			[]string{"TestAttackAnswersAtListeners", "TestAttackReplyToSibling"}},
		{"reads by conditions in `Nats-Expected-…` headers", "[refused or dropped](../architecture.md#subjects)",
			[]string{"TestAttackGuessingByHeaders", "TestServerHeaders"}},
		{"hold all 50 open atomic batches", "the admitter falls back to single messages",
			[]string{"TestAttackOpenBatches", "TestAttackFiftyBatches"}},
		{"flood the log or the admitter", "[quotas](../operating.md#quotas), bounded queues",
			[]string{"TestQuotas", "TestAdmissionQuota", "TestWideDocumentsCostMore"}},
		{"claim a `Nats-Msg-Id` first", "the header is dropped",
			[]string{"TestAttackMessageID", "TestRebuildsTheMessage"}},
		{"an acknowledgement of what is not stored", "only the server's durable one counts",
			[]string{"TestNoFalseAcknowledgement", "TestGuardByTheLease"}},
		{"answer `gov.admit.>` first", "permissions; `client` wants a valid receipt",
			[]string{"TestClientBelievesNoImpostor"}},
		{"publish as another publisher; forge `Nats-Request-Info`", "permissions; the server stamps the account",
			[]string{"TestIdentityIsTheServersWord", "TestAccountForIsInjective"}},
		{"delete messages; change buckets' settings", "permissions; an unsigned gap is found",
			[]string{"TestRoleTable", "TestDoctorComparesSettings"}},
		{"a gateway that is taken over", "one tenant, only its registered publishers",
			[]string{"TestAttackGatewayListsOthers", "TestAttackGatewayAsksForOthers", "TestAttackGatewaySpeaksForOthers", "TestAttackForbiddenSubjects"}},
		{"answer a hook or an SDK in the gateway's place", "the receipt must fit the call; no redirects",
			[]string{"TestGatewayFails", "TestNoRedirect", "TestVectors"}},
		{"a forged, expired or foreign certificate or JWT", "checked at each request; role and user come from the mapping",
			[]string{"TestClientCertificates", "TestCertificateExpiresOnOpenConnection", "TestJWT", "TestIssuerKeys"}},
		{"come back as a removed user", "password and tokens end before the command returns",
			[]string{"TestReloadRemovesUsers", "TestCredentialsOfRemovedUsersEnd", "TestRemovalWaitsForTheGateway"}},
		{"a proposal that passes for an observation: another spelling, charset, compression or path", "asked for, or refused",
			[]string{"TestVerdictsAndRefusals"}},
		{"hide a request behind one with chunks and a length", "the connection ends with a chunked request",
			[]string{"TestNoRequestBehindChunks"}},
		{"an operator revokes a mandate in its principal's name", "`by` in the record, from a key that the server lets no operator write",
			[]string{"TestAttackForbiddenSubjects", "TestMandatesOfPrincipals"}},
		{"guess a token; name another publisher", "256 random bits, stored as SHA-256",
			[]string{"TestFind", "TestVerdictsAndRefusals", "TestTokensChangeWithoutRestart"}},
		{"read another tenant's outputs", "permissions",
			[]string{"TestTwoTenants"}},
		{"write a decision or an approval", "`forged_record`; no answer with it is proved",
			[]string{"TestForgedDecision", "TestForgedApproval"}},
		{"take a finding back with the admitter's password", "only one of severity `info` does, and its severity is that of its subject",
			[]string{"TestLatestFindings", "TestTamperingIsFound"}},
		{"a lagging replica hides a key, a retirement, a used approval", "reads from the leader; compare-and-set",
			[]string{"TestKeyExistsAndIsNotFoundYet", "TestAnOlderStateIsNotApplied", "TestWatchThatStandsStillIsNoticed"}},
	}},
	{"Verdicts, approvals and money", []attack{
		{"approve what only looks askable", "[its own ask](../approvals.md#what-an-approval-lifts) alone",
			[]string{"TestWhatAnApprovalLifts", "TestApprovalOfAWeakerRequest", "TestApprovalOfAnotherAsk"}},
		{"free a mandate's money by reports or many receipts", "[an end frees](../mandates.md#money) its own reservation",
			[]string{"TestAttackMoneyFreedByAnotherCallsEnd", "TestAttackMoneyInParallel", "TestMoneyIsFreeAfterTheReceipt"}},
		{"one call through two protocols", "one reservation an action, one allow an approval",
			[]string{"TestAttackTwoProtocolsOneBudget", "TestAttackTwoProtocolsOneApproval"}},
		{"lying reports against a limit", "allows count, and none is given back",
			[]string{"TestAttackLimitWindow"}},
		{"a condition without end", "`policy_memory`, `policy_deadline`",
			[]string{"TestMemoryOfOneCallIsBounded", "TestDeadlineEndsAnEvaluation", "TestComparisonsArePricedCheaply"}},
		{"names and lists that cost more than their length", "each is read once",
			[]string{"TestToolNameIsReadOnce", "TestArgumentNamesAreReadOnce", "TestPreviewOfALongName", "TestMandateIsPreparedOnce", "TestPathInCopiesNoOtherNames"}},
		{"exhaust the admitter's memory", "reserved first (`--memory-limit`); 1.25 MiB a message",
			[]string{"TestRefusesBeforeTheMemoryIsUsedUp", "TestFloodOfLargeRequests", "TestTenantsMessagesAreBounded"}},
		{"take all workers or evaluations", "shares by tenant and user",
			[]string{"TestSharesLeaveSomethingForOthers", "TestPlacesAreGivenInTurn"}},
		{"another agent's mandate; fill its ledger; probe ids and hashes", "`scope_violation`; shares of the ledger; `mandate_not_found` alone",
			[]string{"TestMandateOfAnotherAgent", "TestLedgerIsSharedAmongCallers", "TestNoAnswerTellsThatAMandateExists"}},
		{"a decision by a withdrawn policy, mandate or key", "a change is in every admitter, and on the log, before its command returns",
			[]string{"TestChangesAreInForceWhenTheCommandReturns", "TestNothingIsDecidedBeforeTheChangeIsRecorded"}},
		{"many votes; approval against denial", "one vote a reviewer, one end, one allow",
			[]string{"TestAttackQuorum"}},
		{"a destructive tool with `action: read`", "lint warns `claim_alone`",
			[]string{"TestLint", "examples/tables"}},
		{"ask over a protocol of which no policy speaks", "denied; over AANA and AUMP [their evaluator decides](../policies.md#how-a-verdict-comes-about), and lint remarks `evaluator_alone`",
			[]string{"TestLint", "TestLintKnowsTheEvaluators", "examples/tables"}},
		{"look-alike or hidden characters in names", "`invalid_tool_name`, `tool_name_case`, `invalid_argument_name`",
			[]string{"TestDeceptiveToolNamesAreDeniedWhateverMatches", "TestDeceptiveArgumentNamesAreDenied"}},
		{"a receipt twice, late, altered, of another key or call", "arguments are compared right before the tool; a use stays used",
			[]string{"TestGuardRefuses", "TestGuardRunsOnce", "TestAttackGuard…"}},
		{"sign with a stolen, replaced key", "`keys retire`: told executors refuse it",
			[]string{"TestKeyRetirement", "TestRetiredKeyThatReadsDoNotShow"}},
		{"ask twice under one call id, run twice", "under a mandate `guard.Guard` runs one; else `orphan_completion`",
			[]string{"TestReceiptsOfOneAllowance"}},
		{"choose [mode observe](../policies.md#mode-observe)", "only a flag of the admitter does",
			[]string{"TestNoCallerChoosesTheMode", "TestObserve"}},
	}},
	{"What ran", []attack{
		{"run it anyway", "not preventable from outside; `executed_…`",
			[]string{"TestFindings"}},
		{"report a denied run as `cancelled`; blame the fail mode", "a start or executed arguments mean that it ran",
			[]string{"TestRules"}},
		{"change the arguments after the verdict", "`input_drift`",
			[]string{"TestCheckGolden"}},
		{"claim, reuse or invent an approval", "policies see no claims; AH-C-081, AH-C-104, AH-C-105",
			[]string{"TestCorpus"}},
		{"leave out the blocks that rules judge", "one block, a registration or a verdict binds a call",
			[]string{"TestCorpus", "TestLacking"}},
		{"an invalid reply; an early default; one id for two tools", "it changes no state; AAEP-C-103, C-105",
			[]string{"TestCorpus"}},
		{"reuse a user's confirmation; forge a trace event", "bound to one call, used once, before the session ends; signatures",
			[]string{"TestForged", "TestConfirmationOfAnEndedSession"}},
		{"flood what the correlator remembers of all tenants", "shares of tenants: the one that holds most loses",
			[]string{"TestSharedFairly", "TestTenantsKeepTheirShare", "TestQuestionOutlivesAFlood", "TestMandatesOutliveAFlood", "TestFloodLeavesRoomForArguments"}},
	}},
	{"Evidence", []attack{
		{"change, delete, invent or move rows", "hashes, chains, the tree, checkpoints also on NATS",
			[]string{"TestTampering", "TestCopiesInEvidenceAreProved", "TestAStartPutsRightWhatWasChangedByHand"}},
		{"change unsigned rows while no auditor runs", "signed intents of inserts; the auditor [ends](../operating.md#records-that-no-auditor-had-an-intent-for)",
			[]string{"TestAttackUnsignedRows", "TestAnnouncedByTheActiveOneOnly"}},
		{"change the last record of a session while the auditor runs", "the next one is chained to its text, or the auditor ends",
			[]string{"TestAttackHeads"}},
		{"an event whose redactions repeat a name of half a megabyte", "`too_many_redactions`; a batch ends before it is too large",
			[]string{"TestBuildWithoutABody", "TestABatchIsCutByTheBytesOfItsRecords"}},
		{"change a derived table", "`derived_row`; [proved commands](../auditing.md#what-an-answer-rests-on)",
			[]string{"TestDerivedRowsAreProved", "TestIndexesAreNotBelieved"}},
		{"hide rows by NULL, a type, a view, an alias, a row policy", "`schema_differs`",
			[]string{"TestDerivedRowsThatAreNull", "TestSchemaDifferences"}},
		{"answer verification and question differently; cut back to a checkpoint", "`--proved`; `log_mismatch`; what is compared is counted, and asked for once",
			[]string{"TestProvedAnswersNeedNoServer", "TestStoredCheckpointsAreReadOnce", "TestVerifyDemandsComparisons"}},
		{"empty texts", "only a [signed record](../retention.md#when-evidence-expires) explains it",
			[]string{"TestReadersSayWhatExpired"}},
		{"cut off or replace the log", "`verify --at-least`, checkpoints in other hands; `log_recreated`",
			[]string{"TestTampering"}},
		{"add signature lines to stored checkpoints, to name or to hide a witness", "bundles take only what the log's key and trusted witnesses signed",
			[]string{"TestCosignedCheckpoint", "TestKeepSignatures"}},
		{"write key and expiry records without the checkpoint key, to spoil bundles", "what it did not sign is left out; `verify` of the whole log reports it",
			[]string{"TestUnsignedControlRecords"}},
		{"sign a second history under another incarnation's name, or of a size of its own", "a witness refuses it; the auditor is unhealthy",
			[]string{"TestWitnessRefusesAnotherIncarnation", "TestSignaturesOfWitnesses"}},
		{"damage log or evidence on the disk", "services end and name what is missing",
			[]string{"TestDamagedLog", "TestDamagedEvidence"}},
		{"a credential as a name; a decision's words named as secrets", "a token in every record, table and bundle",
			[]string{"TestCredentialsAsNames", "TestNamesHoldNoCredential", "TestOwnWordsStay"}},
		{"keep an unparseable request for ever", "erasable by sequence, header and period",
			[]string{"TestErasedWithoutSession"}},
		{"erase or expire held data under another name of its session", "both names mean the session",
			[]string{"TestHoldByEitherName", "TestPeriodsRunOut"}},
		{"listen where a killed `up` listened", "commands and gates refuse its ready file",
			[]string{"TestReadyFileLeftBehind", "TestConfigurationFails"}},
	}},
}

func securityTests(root string, p *text) error {
	files, err := testFiles(root)
	if err != nil {
		return err
	}
	p.line("Those on the way into the log were tried from outside. [security.md](../security.md) says who is trusted with what, and what is not promised.\n")
	for _, group := range attacks {
		p.line("## %s\n", group.aim)
		var rows [][]string
		for _, a := range group.list {
			var links []string
			for _, name := range a.tests {
				link, err := testLink(root, files, name)
				if err != nil {
					return fmt.Errorf("%q: %w", a.what, err)
				}
				links = append(links, link)
			}
			rows = append(rows, []string{a.what, a.heldBy, strings.Join(links, ", ")})
		}
		p.table([]string{"attack", "held by", "test"}, rows)
	}
	return nil
}

// testLink links a test to its file. A name that several files have is no link.
func testLink(root string, files map[string][]string, name string) (string, error) {
	where := files[name]
	switch prefix, several := strings.CutSuffix(name, "…"); {
	case several:
		for other, in := range files {
			if strings.HasPrefix(other, prefix) {
				where = append(where, in...)
			}
		}
		if len(where) > 0 {
			return quoted(name), nil
		}
	case strings.Contains(name, "/"):
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			return "", err
		}
		where = []string{name}
	}
	switch len(where) {
	case 0:
		return "", fmt.Errorf("there is no test %s", name)
	case 1:
		return fmt.Sprintf("[%s](../../%s)", quoted(name), where[0]), nil
	}
	return quoted(name), nil
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// testFiles gives the files of every test by its name.
func testFiles(root string) (map[string][]string, error) {
	files := map[string][]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		// A test's result is remembered as long as nothing that it read has changed, and every build touches bin.
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git" || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		for _, m := range testFunction.FindAllSubmatch(source, -1) {
			test := string(m[1])
			files[test] = append(files[test], filepath.ToSlash(rel))
		}
		return err
	})
	return files, err
}
