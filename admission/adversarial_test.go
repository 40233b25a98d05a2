package admission

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/policy/names"
	"github.com/countersign-dev/countersign/events"
)

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
