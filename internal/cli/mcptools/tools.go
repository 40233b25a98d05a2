// Package mcptools is `countersign mcp tools`: an MCP server on standard input and output with which an
// agent asks for AANA's and AUMP's evaluations, and reads evidence. Begin reading with tools.
package mcptools

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/hook"
	"github.com/countersign-dev/countersign/internal/buildinfo"
	"github.com/countersign-dev/countersign/internal/cli/mcpcmd"
	"github.com/countersign-dev/countersign/internal/gateclient"
)

// Cmd is `countersign mcp tools`.
type Cmd struct {
	ReadyFile string `help:"Ready file of a running 'up' on this machine (default: COUNTERSIGN_READY_FILE of the environment, without --config)." placeholder:"FILE" xor:"peer"`
	Config    string `help:"The gates' configuration, with the gateway's address; evidence tools need a ready file." placeholder:"FILE" xor:"peer"`
}

// Run serves one client until it ends.
func (c *Cmd) Run(ctx context.Context) error {
	s := c.service()
	err := s.server().Run(ctx, &mcp.StdioTransport{})
	s.closeAll()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// closeTimeout bounds the report that a question is over, and that of all when the client ends.
const closeTimeout = 5 * time.Second

// service answers calls.
type service struct {
	peer    func() (gateclient.Peer, error)
	read    func(ctx context.Context, command string, args ...string) (string, error)
	session string
	key     string // of the ids of questions; it is not kept

	mu   sync.Mutex
	open map[string]*time.Timer // of the allowed questions, each closes its own
}

func (c *Cmd) service() *service {
	return &service{
		peer: mcpcmd.Gateway{ReadyFile: c.ReadyFile, Config: c.Config}.Peer, read: evidence{gateclient.ReadyFileOf(c.ReadyFile, c.Config)}.run,
		session: "mcp-tools-" + uuid.NewString(), key: rand.Text(), open: map[string]*time.Timer{},
	}
}

// tool is one tool: its schema is ours, its meaning that of the specification.
type tool struct {
	name, about string
	does        effect
	input       string // JSON Schema
	output      string // JSON Schema of the structured answer
	answer      func(s *service, ctx context.Context, arguments []byte) (text string, structured json.RawMessage, err error)
}

// effect is what a call of a tool leaves behind.
type effect int

const (
	reads     effect = iota
	evaluates        // a question on record; of an allowed action also a reservation of the money that it would spend
	records          // an event
	revokes
)

var no, yes = false, true

// hints say to clients what a call leaves behind. AANA and AUMP demand of an evaluation that it reads and can be
// repeated: nothing outside the log changes, and a question that is repeated reserves nothing more.
var hints = map[effect]mcp.ToolAnnotations{
	reads:     {ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &no},
	evaluates: {ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &no},
	records:   {DestructiveHint: &no, OpenWorldHint: &no},
	revokes:   {IdempotentHint: true, DestructiveHint: &yes, OpenWorldHint: &no},
}

// tools are all tools.
var tools = []tool{
	{"aana_pre_tool_check", "AANA: the route for a tool call that is about to be made." + noPermission, evaluates, aanaEvent, aanaAnswer, (*service).preToolCheck},
	{"aump.resolve_mandate", "AUMP: the hash, version and state of a mandate, not its text.", reads,
		`{"type":"object","additionalProperties":false,"required":["mandate_ref"],"properties":{` + fmt.Sprintf(mandateRef, `"id"`) + `}}`, aumpMandate, (*service).resolveMandate},
	{"aump.evaluate_action", "AUMP: whether an action is covered by a mandate. An allowed amount stays reserved until its permission has expired." + noPermission, evaluates,
		`{"type":"object","additionalProperties":false,"required":["mandate_ref","proposed_action"],"properties":{` + fmt.Sprintf(mandateRef, `"id","hash"`) + `,"proposed_action":{"type":"object"},"context":{"type":"object"}}}`,
		aumpAnswer, (*service).evaluateAction},
	{"aump.append_evidence", "AUMP: store an evidence event about a mandate. It is what its sender says, and is held against the log.", records,
		`{"type":"object","additionalProperties":false,"required":["evidence_event"],"properties":{"evidence_event":{"type":"object","required":["mandate_ref"],"properties":{` + fmt.Sprintf(mandateRef, `"id"`) + `}},"session":{"type":"string","minLength":1,"maxLength":256}}}`,
		aumpStored, (*service).appendEvidence},
	{"aump.revoke_mandate", "AUMP: end a mandate for good, as its principal. Of others' mandates nothing is said.", revokes,
		`{"type":"object","additionalProperties":false,"required":["mandate_ref","reason"],"properties":{` + fmt.Sprintf(mandateRef, `"id"`) + `,"reason":{"type":"string","minLength":1,"maxLength":512}}}`,
		aumpRevoked, (*service).revokeMandate},
	{"countersign_session", "What happened in a session, in the order of the log.", reads, fmt.Sprintf(oneText, "session"), onRecord, evidenceOf("session", "session")},
	{"countersign_findings", "What was found in a session: broken rules and their proof.", reads, fmt.Sprintf(oneText, "session"), onRecord, evidenceOf("findings", "session")},
	{"countersign_explain", "Why a decision was made.", reads, fmt.Sprintf(oneText, "decision"), onRecord, evidenceOf("explain", "decision")},
}

// server is the MCP server with all tools.
func (s *service) server() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "countersign", Version: buildinfo.Version()}, nil)
	for _, t := range tools {
		server.AddTool(t.definition(), func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return s.call(ctx, t, r.Params.Arguments), nil
		})
	}
	addDecisionPage(server)
	return server
}

// definition is the tool as clients see it.
func (t tool) definition() *mcp.Tool {
	about := hints[t.does]
	d := &mcp.Tool{Name: t.name, Description: t.about, InputSchema: json.RawMessage(t.input), OutputSchema: json.RawMessage(t.output), Annotations: &about}
	if t.output == aanaAnswer {
		d.Meta = showsDecision
	}
	return d
}

// call answers one call. What cannot be answered is a result with isError, which never reads as a yes.
func (s *service) call(ctx context.Context, t tool, arguments json.RawMessage) *mcp.CallToolResult {
	text, structured, err := "", json.RawMessage(nil), checkMembers(t.input, arguments)
	if err == nil {
		text, structured, err = t.answer(s, ctx, arguments)
	}
	result := &mcp.CallToolResult{IsError: err != nil}
	if err != nil {
		text = "Countersign: no answer: " + gateclient.Clean(err.Error())
	} else {
		result.StructuredContent = structured
	}
	result.Content = []mcp.Content{&mcp.TextContent{Text: text}}
	return result
}

// checkMembers refuses arguments that could be read in two ways, and members that the schema does not
// have or that are missing.
func checkMembers(schema string, arguments []byte) error {
	given, err := strictjson.ParseObject(arguments, strictjson.DefaultLimits)
	if err != nil {
		return fmt.Errorf("the arguments: %w", err)
	}
	var s struct {
		Required   []string
		Properties map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		return err
	}
	for name := range given {
		if _, known := s.Properties[name]; !known {
			return errors.New("the arguments have a member that the tool does not have")
		}
	}
	for _, name := range s.Required {
		if _, there := given[name]; !there {
			return fmt.Errorf("the arguments lack %s", name)
		}
	}
	return nil
}

// questionID is the id of every identical question of this process. It is on record, so it is keyed: from a plain digest a
// reader could guess what the question says.
func (s *service) questionID(path string, canonical []byte) string {
	sum := hmac.New(sha256.New, []byte(s.key))
	_, _ = fmt.Fprintf(sum, "%s\x00%s", path, canonical) // a hash takes every byte
	return fmt.Sprintf("ask-%x", sum.Sum(nil))
}

// ask asks the gateway for a verdict. Nothing runs under the question's id, which is that of every identical question. An
// allowed one is closed when its receipt is over: until then an identical question shares its money.
func (s *service) ask(ctx context.Context, path string, body []byte) (json.RawMessage, error) {
	canonical, err := strictjson.CanonicalBytes(body)
	if err != nil {
		return nil, err
	}
	id := s.questionID(path, canonical)
	header, answer, err := s.post(ctx, path, body, map[string]string{events.HeaderSession: s.session, events.HeaderToolCallID: id})
	if err == nil && header.Get(events.HeaderVerdict) == string(events.Allow) {
		s.keepOpen(id, time.Until(lastUse(header.Get(events.HeaderReceipt))))
	}
	return answer, err
}

// lastUse is the time until which an executor may accept a receipt, zero for what is none. Nothing is permitted by it.
func lastUse(token string) time.Time {
	var claims struct {
		ExpiresAt time.Time `json:"expires_at"`
	}
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || json.Unmarshal(text, &claims) != nil {
		return time.Time{}
	}
	return claims.ExpiresAt.Add(receipt.Leeway)
}

// keepOpen closes a question after a time; a question that is repeated, after its new time.
func (s *service) keepOpen(id string, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.open[id]; t != nil {
		t.Stop()
	}
	var own *time.Timer
	own = time.AfterFunc(after, func() {
		s.mu.Lock()
		replaced := s.open[id] != own // the question was repeated meanwhile
		if !replaced {
			delete(s.open, id)
		}
		s.mu.Unlock()
		if replaced {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		s.reportNotRun(ctx, id)
	})
	s.open[id] = own
}

// closeAll closes all questions that are open.
func (s *service) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for id, t := range s.open {
		if t.Stop() {
			s.reportNotRun(ctx, id)
		}
	}
}

// reportNotRun closes an allowed question on the log, which frees its money. No answer depends on it.
func (s *service) reportNotRun(ctx context.Context, id string) {
	event, err := hook.Event{Kind: hook.Blocked, Session: s.session, Version: buildinfo.Version()}.AgentHook("mcp-tools",
		hook.Envelope{ID: uuid.NewString(), Time: time.Now(), CallID: id})
	if err == nil {
		_, _, _ = s.post(ctx, "/event", event, nil)
	}
}

func (s *service) post(ctx context.Context, path string, body []byte, header map[string]string) (http.Header, json.RawMessage, error) {
	p, err := s.peer()
	if err != nil {
		return nil, nil, err
	}
	got, answer, err := gateclient.NewAsker(p).Ask(ctx, path, body, header)
	if err == nil && !json.Valid(answer) {
		return nil, nil, errors.New("the gateway's answer makes no sense")
	}
	return got, answer, err
}

func (s *service) evaluateAction(ctx context.Context, arguments []byte) (string, json.RawMessage, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(arguments, &given); err != nil {
		return "", nil, err
	}
	given["aump"] = json.RawMessage(`{"version":"0.1.0","type":"action_evaluation_request"}`)
	body, err := json.Marshal(given)
	if err != nil {
		return "", nil, err
	}
	answer, err := s.ask(ctx, "/v1/admit/"+subject.ProtoAUMP, body) // here a denial is an answer, also of a mandate that there is not
	if err != nil {
		return "", nil, err
	}
	var said struct {
		Decision string
		Reasons  []string `json:"reason_codes"`
	}
	if err := json.Unmarshal(answer, &said); err != nil || said.Reasons == nil || !slices.Contains([]string{"allowed", "denied", "requires_escalation"}, said.Decision) {
		return "", nil, errors.New("the gateway's answer makes no sense")
	}
	return "AUMP decision: " + said.Decision + ".", answer, nil
}

// appendEvidence stores an event in the session that the caller names, else in this server's own.
func (s *service) appendEvidence(ctx context.Context, arguments []byte) (string, json.RawMessage, error) {
	var given struct {
		Event   json.RawMessage `json:"evidence_event"`
		Session string          `json:"session"`
	}
	var about struct {
		Ref struct{ ID string } `json:"mandate_ref"`
	}
	if err := json.Unmarshal(arguments, &given); err != nil || len(given.Session) > 256 {
		return "", nil, errors.New("session must be a text of 1 to 256 bytes")
	}
	if err := json.Unmarshal(given.Event, &about); err != nil || about.Ref.ID == "" {
		return "", nil, errors.New("evidence_event has no mandate_ref with an id")
	}
	_, answer, err := s.post(ctx, mandatePath(about.Ref.ID, "appendEvidence"), given.Event, map[string]string{events.HeaderSession: cmp.Or(given.Session, s.session)})
	if err != nil {
		return "", nil, err
	}
	return "AUMP evidence: stored.", answer, nil
}

// revokeMandate revokes a mandate. The gateway knows its principal by the token.
func (s *service) revokeMandate(ctx context.Context, arguments []byte) (string, json.RawMessage, error) {
	var given struct {
		Ref struct{ ID string } `json:"mandate_ref"`
	}
	if err := json.Unmarshal(arguments, &given); err != nil || given.Ref.ID == "" {
		return "", nil, errors.New("mandate_ref has no id")
	}
	_, answer, err := s.post(ctx, mandatePath(given.Ref.ID, "revoke"), arguments, nil)
	if err != nil {
		return "", nil, err
	}
	return "AUMP mandate: revoked.", answer, nil
}

// mandatePath is the gateway's endpoint for an operation on a mandate.
func mandatePath(id, operation string) string {
	return "/aump/mandates/" + url.PathEscape(id) + ":" + operation
}

// resolveMandate finds a mandate by its id. Its text stays where it is: it may hold what its principal
// wants and can spend.
func (s *service) resolveMandate(ctx context.Context, arguments []byte) (string, json.RawMessage, error) {
	var given struct {
		Ref struct{ ID, Hash string } `json:"mandate_ref"`
	}
	if err := json.Unmarshal(arguments, &given); err != nil || given.Ref.ID == "" {
		return "", nil, errors.New("mandate_ref has no id")
	}
	list, err := s.read(ctx, "mandate list")
	if err != nil {
		return "", nil, err
	}
	var rows []struct {
		ID      string `json:"id"`
		Hash    string `json:"hash"`
		State   string `json:"state"`
		InForce bool   `json:"in_force"`
	}
	if err := json.Unmarshal([]byte(list), &rows); err != nil {
		return "", nil, errors.New("the list of mandates cannot be read")
	}
	hash, wellFormed := aump.NormaliseHash(given.Ref.Hash)
	for _, row := range rows {
		if row.ID == given.Ref.ID && (given.Ref.Hash == "" || wellFormed && row.Hash == hash) {
			found, err := json.Marshal(row)
			return fmt.Sprintf("AUMP mandate: %s.", row.State), found, err
		}
	}
	return "", nil, errors.New("there is no such mandate")
}

// evidenceOf answers with what a command of countersign prints about what one argument names.
func evidenceOf(command, argument string) func(*service, context.Context, []byte) (string, json.RawMessage, error) {
	return func(s *service, ctx context.Context, arguments []byte) (string, json.RawMessage, error) {
		var given map[string]string
		if err := json.Unmarshal(arguments, &given); err != nil || given[argument] == "" || len(given[argument]) > 256 {
			return "", nil, fmt.Errorf("%s must be a text of 1 to 256 bytes", argument)
		}
		args := []string{"--limit=0", "--session=" + given[argument]} // an old finding may be the worst
		if command != "findings" {
			args = []string{"--", given[argument]}
		}
		text, err := s.read(ctx, command, args...)
		if err != nil {
			return "", nil, err
		}
		structured, err := recordsOf(text)
		return cmp.Or(text, "Nothing is on record."), structured, err
	}
}

// Schemas of inputs. The members are those of AANA and AUMP, the texts are ours.
const (
	oneText      = `{"type":"object","additionalProperties":false,"required":[%q],"properties":{%[1]q:{"type":"string","minLength":1,"maxLength":256}}}`
	mandateRef   = `"mandate_ref":{"type":"object","additionalProperties":false,"required":[%s],"properties":{"id":{"type":"string","minLength":1},"hash":{"type":"string"},"version":{"type":"string"}}}`
	aanaEvent    = `{"type":"object","additionalProperties":false,"required":["tool_name","tool_category","authorization_state","evidence_refs","risk_domain","proposed_arguments","recommended_route"],"properties":{"tool_name":{"type":"string","minLength":1},"tool_category":{"enum":["public_read","private_read","write","unknown"]},"authorization_state":{"enum":["none","user_claimed","authenticated","validated","confirmed"]},"evidence_refs":{"type":"array"},"risk_domain":{"type":"string"},"proposed_arguments":{"type":"object"},"recommended_route":{"enum":["accept","ask","defer","refuse"]}}}`
	noPermission = " The answer is information: it carries no permission to run anything."
)

// Schemas of structured answers. An answer with isError has none.
const (
	texts       = `{"type":"array","items":{"type":"string"}}`
	aanaRoute   = `{"enum":["accept","ask","defer","refuse"]}`
	aanaUse     = `{"type":"object","additionalProperties":false,"required":["used","missing","contradictory"],"properties":{"used":` + texts + `,"missing":` + texts + `,"contradictory":` + texts + `}}`
	aanaAudit   = `{"type":"object","required":["audit_event_version","route","gate_decision","aix_score","hard_blockers","raw_payload_logged"],"properties":{"route":` + aanaRoute + `,"raw_payload_logged":{"const":false}}}`
	aanaAnswer  = `{"type":"object","additionalProperties":false,"required":["route","execution_allowed","gate_decision","recommended_action","aix_score","hard_blockers","missing_evidence","evidence_refs","authorization_state","recovery_suggestion","correction_recovery_suggestion","audit_event","audit_safe_log_event"],"properties":{"route":` + aanaRoute + `,"execution_allowed":{"type":"boolean"},"gate_decision":{"enum":["pass","fail"]},"recommended_action":` + aanaRoute + `,"aix_score":{"type":"number","minimum":0,"maximum":1},"hard_blockers":` + texts + `,"missing_evidence":` + texts + `,"evidence_refs":` + aanaUse + `,"authorization_state":{"enum":["none","user_claimed","authenticated","validated","confirmed","not_declared"]},"recovery_suggestion":{"type":"string"},"correction_recovery_suggestion":{"type":"string"},"audit_event":` + aanaAudit + `,"audit_safe_log_event":` + aanaAudit + `,"approval":{"type":"object","required":["required","status","workflow_id","expires_at"],"properties":{"workflow_id":{"type":"string"}}}}}`
	aumpAnswer  = `{"type":"object","required":["mandate_ref","decision","reason_codes"],"properties":{"mandate_ref":{"type":"object","required":["id","hash"]},"decision":{"type":"string","enum":["allowed","requires_escalation","denied"]},"reason_codes":{"type":"array","items":{"type":"string"}},"paths":{"type":"array","items":{"type":"string"}},"summary":{"type":"string"},"required_escalation":{"type":"object"}}}`
	aumpMandate = `{"type":"object","additionalProperties":false,"required":["id","hash","state","in_force"],"properties":{"id":{"type":"string"},"hash":{"type":"string"},"state":{"type":"string"},"in_force":{"type":"boolean"}}}`
	aumpStored  = `{"type":"object","additionalProperties":false,"required":["stored"],"properties":{"stored":{"const":1}}}`
	aumpRevoked = `{"type":"object","additionalProperties":false,"required":["code","revocation"],"properties":{"code":{"const":"ok"},"revocation":{"type":"object"}}}`
	onRecord    = `{"type":"object","additionalProperties":false,"required":["records"],"properties":{"records":{"type":"array","items":{"type":"object"}}}}`
)
