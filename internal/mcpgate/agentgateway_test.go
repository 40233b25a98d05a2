package mcpgate

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/mcp"
)

// extTypes are the messages of ExtMCP for the protobuf library, which reads and writes them for the tests.
var extTypes = sync.OnceValue(func() protoreflect.FileDescriptor {
	const texts, lists, text, octets, message, number = "texts", "lists", "text", "bytes", "message", "number"
	field := func(name string, n int32, kind string, of ...string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &n, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
		switch kind {
		case texts:
			f.Label, f.Type = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(), descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum()
		case lists:
			f.Label, f.Type = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(), descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum()
		case text:
			f.Type = descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum()
		case octets:
			f.Type = descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum()
		case number:
			f.Type = descriptorpb.FieldDescriptorProto_TYPE_INT32.Enum()
		case message:
			f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), &of[0]
		}
		return f
	}
	const object = ".google.protobuf.Struct"
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("ext"), Package: proto.String("ext"), Syntax: proto.String("proto3"), Dependency: []string{"google/protobuf/struct.proto"},
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("Question"), Field: []*descriptorpb.FieldDescriptorProto{
				field("servers", 1, texts), field("method", 2, text), field("metadata", 3, message, object), field("body", 4, octets), field("id", 6, text)}},
			{Name: proto.String("RawQuestion"), Field: []*descriptorpb.FieldDescriptorProto{
				field("servers", 1, lists), field("method", 2, octets), field("metadata", 3, octets), field("body", 4, octets)}},
			{Name: proto.String("OldQuestion"), Field: []*descriptorpb.FieldDescriptorProto{
				field("server", 1, text), field("method", 2, text), field("metadata", 3, message, object), field("body", 4, message, object)}},
			{Name: proto.String("Result"), Field: []*descriptorpb.FieldDescriptorProto{
				field("pass", 1, message, ".ext.Pass"), field("error", 3, message, ".ext.Error"), field("metadata", 5, message, object)}},
			{Name: proto.String("Pass")},
			{Name: proto.String("Error"), Field: []*descriptorpb.FieldDescriptorProto{field("code", 1, number), field("reason", 2, text), field("payload", 3, octets)}},
		},
	}
	structpb.File_google_protobuf_struct_proto.Path() // is registered
	made, err := protodesc.NewFile(file, registry{})
	if err != nil {
		panic(err)
	}
	return made
})

// registry knows google/protobuf/struct.proto.
type registry struct{}

func (registry) FindFileByPath(string) (protoreflect.FileDescriptor, error) {
	return structpb.File_google_protobuf_struct_proto, nil
}

func (registry) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d := structpb.File_google_protobuf_struct_proto.Messages().ByName(name.Name()); d != nil {
		return d, nil
	}
	return nil, errors.New("unknown")
}

func extMessage(name string) *dynamicpb.Message {
	return dynamicpb.NewMessage(extTypes().Messages().ByName(protoreflect.Name(name)))
}

func set(m *dynamicpb.Message, name string, value any) {
	m.Set(m.Descriptor().Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOf(value))
}

// question is a question of the current shape. Without params it has none.
func question(t testing.TB, method, params string, metadata map[string]any, servers ...string) *dynamicpb.Message {
	t.Helper()
	m := extMessage("Question")
	list := m.NewField(m.Descriptor().Fields().ByName("servers"))
	for _, server := range servers {
		list.List().Append(protoreflect.ValueOf(server))
	}
	m.Set(m.Descriptor().Fields().ByName("servers"), list)
	set(m, "method", method)
	set(m, "id", "an-invocation")
	if params != "" {
		set(m, "body", []byte(params))
	}
	if metadata != nil {
		set(m, "metadata", structOf(t, metadata).ProtoReflect())
	}
	return m
}

func structOf(t testing.TB, o map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// extAnswer is a result, as the protobuf library reads it.
type extAnswer struct {
	pass    bool
	code    int64
	reason  string
	payload string // "" for none
	callID  string
}

func answerOf(t testing.TB, m *dynamicpb.Message) extAnswer {
	t.Helper()
	fields := m.Descriptor().Fields()
	a := extAnswer{pass: m.Has(fields.ByName("pass"))}
	if e := fields.ByName("error"); m.Has(e) {
		if a.pass {
			t.Fatalf("pass and error at once: %v", m)
		}
		inner := m.Get(e).Message()
		of := func(name string) protoreflect.Value {
			return inner.Get(inner.Descriptor().Fields().ByName(protoreflect.Name(name)))
		}
		a.code, a.reason, a.payload = of("code").Int(), of("reason").String(), string(of("payload").Bytes())
	} else if !a.pass {
		t.Fatalf("neither pass nor error: %v", m)
	}
	if text, err := proto.Marshal(m.Get(fields.ByName("metadata")).Message().Interface()); err == nil {
		var s structpb.Struct
		if err := proto.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		a.callID = s.GetFields()[metadataCall].GetStringValue()
	}
	return a
}

// asker is agentgateway: the gRPC library before a decision point that runs.
type asker struct{ *grpc.ClientConn }

func (a asker) check(t *testing.T, method string, q proto.Message) extAnswer {
	t.Helper()
	result := extMessage("Result")
	if err := a.Invoke(t.Context(), method, q, result); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return answerOf(t, result)
}

// startDecide runs Decide and returns a client of it.
func startDecide(t *testing.T, o DecideOptions, c credentials.TransportCredentials) asker {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan string, 2), make(chan error, 1)
	o.Ready = func(url string) { ready <- url }
	go func() { ended <- Decide(ctx, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Decide: %v", err)
		}
	})
	var url string
	select {
	case url = <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	_, address, _ := strings.Cut(url, "://")
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return asker{conn}
}

// agentGatewayOptions are those of a decision point before a gateway.
func agentGatewayOptions(t *testing.T, gateway http.Handler) DecideOptions {
	t.Helper()
	s := httptest.NewServer(gateway)
	t.Cleanup(s.Close)
	peer := peerAt(t, s.URL)
	return DecideOptions{Peer: func() (gateclient.Peer, error) { return peer, nil }, Hold: time.Second, Listen: "127.0.0.1:0", AgentGateway: "127.0.0.1:0", Err: &buffer{}}
}

const callParams = `{"name":"t","arguments":{"n":1}}`

// agentgateway is answered as its service is: by the gRPC and protobuf libraries every answer is a result
// with status 0, pass or error.
func TestAgentGateway(t *testing.T) {
	denying := startDecide(t, agentGatewayOptions(t, answer(200, map[string]string{"Countersign-Verdict": "deny"}, denies)), insecure.NewCredentials())
	old := func(params map[string]any) *dynamicpb.Message {
		m := extMessage("OldQuestion")
		set(m, "server", "files")
		set(m, "method", "tools/call")
		set(m, "body", structOf(t, params).ProtoReflect())
		return m
	}
	some := map[string]any{"subject": "dana"}
	for name, c := range map[string]struct {
		q       proto.Message
		pass    bool
		code    int64
		want    string
		payload string
	}{
		"a denied call":           {question(t, "tools/call", callParams, some, "files"), false, extDenied, "too risky (deny)", `{"code":"deny","reason":"denied_by_policy"}`},
		"what is not governed":    {question(t, "tools/list", "", some, "files", "mail"), true, 0, "", ""},
		"reads without --reads":   {question(t, "resources/read", `{"uri":"x:y"}`, nil, "files"), true, 0, "", ""},
		"a call of two servers":   {question(t, "tools/call", callParams, nil, "files", "mail"), false, extInvalid, "bad_call", `{"code":"bad_call"}`},
		"a call of no server":     {question(t, "tools/call", callParams, nil), false, extInvalid, "bad_call", `{"code":"bad_call"}`},
		"a server that is none":   {question(t, "tools/call", callParams, nil, "a__b"), false, extInvalid, "bad_call", `{"code":"bad_call"}`},
		"no params":               {question(t, "tools/call", "", nil, "files"), false, extInvalid, "no params", ""},
		"params twice":            {question(t, "tools/call", `{"name":"t","name":"u"}`, nil, "files"), false, extInvalid, "bad_call", `{"code":"bad_call"}`},
		"an argument twice":       {question(t, "tools/call", `{"name":"t","arguments":{"a":1,"a":2}}`, nil, "files"), false, extInvalid, "bad_call", `{"code":"bad_call"}`},
		"input for a call":        {question(t, "tasks/update", `{"taskId":"1"}`, nil, "files"), false, extInvalid, "bad_call", `{"code":"bad_call"}`},
		"no method":               {question(t, "", callParams, nil, "files"), false, extInvalid, "bad_call", ""},
		"a method in capitals":    {question(t, "TOOLS/call", callParams, nil, "files"), false, extInvalid, "bad_call", ""},
		"a caller that is a list": {question(t, "tools/call", callParams, map[string]any{"groups": []any{"a"}}, "files"), false, extInvalid, "metadata", `{"code":"bad_call"}`},
		"a call, older shape":     {old(map[string]any{"name": "t", "arguments": map[string]any{}}), false, extInvalid, "bad_call", ""},
		"empty, older shape":      {old(map[string]any{}), false, extInvalid, "bad_call", ""},
	} {
		a := denying.check(t, extCheckRequest, c.q)
		if a.pass != c.pass || a.code != c.code || !strings.Contains(a.reason, c.want) || a.payload != c.payload || a.callID != "" {
			t.Errorf("%s: %+v", name, a)
		}
	}
	err := denying.Invoke(t.Context(), "/agentgateway.dev.ext_mcp.ExtMcp/Other", extMessage("Pass"), extMessage("Result"))
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("another method: %v", err)
	}
	// A result is passed on, whatever it is.
	for name, q := range map[string]proto.Message{
		"a result": question(t, "tools/call", `{"content":[]}`, some, "files"), "of a call that is none": question(t, "tools/call", `{"content":[]}`, map[string]any{metadataCall: "x"}, "files"),
		"no result": question(t, "tools/call", "", map[string]any{"x": 1}, "files"), "a list": question(t, "tools/list", `{"tools":[]}`, nil, "files", "mail"),
	} {
		if a := denying.check(t, extCheckResponse, q); !a.pass {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// Without a verdict the answer is an error of the gateway's, and says nothing of files or addresses.
func TestAgentGatewayWithoutVerdict(t *testing.T) {
	down := startDecide(t, agentGatewayOptions(t, answer(503, nil, `{}`)), insecure.NewCredentials())
	if a := down.check(t, extCheckRequest, question(t, "tools/call", callParams, nil, "files")); a.pass || a.code != 0 || !strings.Contains(a.reason, "(no_verdict)") || a.payload != `{"code":"no_verdict","reason":"outage"}` {
		t.Errorf("without a gateway: %+v", a)
	}
	o := agentGatewayOptions(t, answer(200, nil, denies))
	o.Peer = func() (gateclient.Peer, error) { return gateclient.Peer{}, errors.New("no /etc/secret/token") }
	unset := startDecide(t, o, insecure.NewCredentials())
	if a := unset.check(t, extCheckRequest, question(t, "tools/call", callParams, nil, "files")); a.pass || a.code != 0 || strings.Contains(a.reason, "secret") || !strings.Contains(a.reason, "bad_configuration") {
		t.Errorf("without a configuration: %+v", a)
	}
}

// A question ends with the time that a call may wait, or with the gateway's patience.
func TestAgentGatewayDoesNotWait(t *testing.T) {
	begun, ended := make(chan bool, 8), make(chan bool, 8)
	silent := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("PreToolUse")) {
			begun <- true
			<-r.Context().Done()
			ended <- true
		}
	})
	o := agentGatewayOptions(t, silent)
	o.Hold = 100 * time.Millisecond
	hasty := startDecide(t, o, insecure.NewCredentials())
	if a := hasty.check(t, extCheckRequest, question(t, "tools/call", callParams, nil, "files")); a.pass || !strings.Contains(a.reason, "(no_verdict)") {
		t.Errorf("no answer in time: %+v", a)
	}
	<-begun
	<-ended
	o.Hold = patience
	patient := startDecide(t, o, insecure.NewCredentials())
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	err := patient.Invoke(ctx, extCheckRequest, question(t, "tools/call", callParams, nil, "files"), extMessage("Result"))
	if status.Code(err) != codes.Canceled {
		t.Errorf("a gateway that gives up: %v", err)
	}
	<-ended
}

// A call that waits for a person says so in what the gateway shows to the client, and only the same caller
// goes on waiting.
func TestAgentGatewayApprovals(t *testing.T) {
	var workflows []string
	asking := startDecide(t, agentGatewayOptions(t, asks(&workflows)), insecure.NewCredentials())
	for i, c := range []struct {
		metadata map[string]any
		waits    bool
	}{
		{map[string]any{"sub": "dana", "iss": "a"}, false},
		{map[string]any{"sub": "eve", "iss": "a"}, false},
		{map[string]any{"sub": "dana", "iss": "b"}, false},
		{nil, false},
		{map[string]any{"iss": "a", "sub": "dana"}, true},
		{map[string]any{"iss": "a", "sub": "dana", metadataCall: "x"}, true}, // of an earlier call
		{map[string]any{"sub": nil}, true},                                   // as none
	} {
		workflows = nil
		a := asking.check(t, extCheckRequest, question(t, "tools/call", callParams, c.metadata, "files"))
		var told mcp.Refusal
		if err := json.Unmarshal([]byte(a.payload), &told); err != nil || a.pass || a.code != extDenied || told.Code != "ask" || told.Workflow != "w1" || told.Retry != mcp.RetryIdentical {
			t.Errorf("%d: %+v: %v", i, a, err)
		}
		if !strings.Contains(a.reason, "Workflow w1") || !strings.Contains(a.reason, "repeat the identical call") {
			t.Errorf("%d: the text: %s", i, a.reason)
		}
		if len(workflows) == 0 || (workflows[0] == "w1") != c.waits {
			t.Errorf("%d: goes on waiting: want %t; sent for %q", i, c.waits, workflows)
		}
	}
}

// What cannot be read is refused by a result, because a gateway may pass a request on that has none.
func TestAgentGatewayReadsOneMessage(t *testing.T) {
	d := startDecider(t, answer(200, map[string]string{"Countersign-Verdict": "deny"}, denies))
	whole, err := proto.Marshal(question(t, "tools/list", "", nil, "files"))
	if err != nil {
		t.Fatal(err)
	}
	framed := frame(whole)
	ask := func(body io.Reader, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, extCheckRequest, body)
		r.Header.Set("Content-Type", "application/grpc+proto")
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		d.agentGateway(w, r)
		return w
	}
	for name, c := range map[string]struct {
		body io.Reader
		want string // "" for pass
	}{
		"a message":          {bytes.NewReader(framed), ""},
		"no message":         {strings.NewReader(""), "bad_call"},
		"half a head":        {bytes.NewReader(framed[:3]), "bad_call"},
		"half a message":     {bytes.NewReader(framed[:len(framed)-1]), "bad_call"},
		"two messages":       {bytes.NewReader(slices.Concat(framed, framed)), "bad_call"},
		"compressed":         {bytes.NewReader(append([]byte{1}, framed[1:]...)), "compressed"},
		"too long":           {bytes.NewReader([]byte{0, 0x7f, 0, 0, 0}), "at most"},
		"no protobuf":        {bytes.NewReader(frame([]byte("hello"))), "bad_call"},
		"a method twice":     {bytes.NewReader(frame(slices.Concat(whole, []byte{0x12, 1, 'x'}))), "bad_call"},
		"params twice":       {bytes.NewReader(frame(slices.Concat(whole, []byte{0x22, 0, 0x22, 0}))), "bad_call"},
		"a method, a number": {bytes.NewReader(frame(slices.Concat(whole, []byte{0x10, 1}))), "bad_call"},
		"what breaks it":     {panics{}, "internal_error"},
	} {
		w := ask(c.body)
		message, err := readFrame(w.Body, 1<<20)
		if err != nil || w.Code != http.StatusOK || w.Result().Trailer.Get("Grpc-Status") != "0" {
			t.Fatalf("%s: status %d, %v, trailer %v", name, w.Code, err, w.Result().Trailer)
		}
		result := extMessage("Result")
		if err := proto.Unmarshal(message, result); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if a := answerOf(t, result); a.pass != (c.want == "") || !strings.Contains(a.reason, c.want) || a.payload != "" {
			t.Errorf("%s: %+v", name, a)
		}
	}
	for name, header := range map[string][]string{"a web page": {"Origin", "https://evil.example"}, "JSON": {"Content-Type", "application/json"}} {
		if w := ask(bytes.NewReader(framed), header...); w.Code != http.StatusUnsupportedMediaType {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

// panics is a body that breaks its reader.
type panics struct{}

func (panics) Read([]byte) (int, error) { panic("broken") }

// The outcome of a call is reported once: as its result says, or as unknown if the result does not come in
// time, or before the end.
func TestAgentGatewayOutcomes(t *testing.T) {
	reports := make(chan string, 32)
	gateway := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var event struct {
			Tool     string `json:"tool_name"`
			Metadata struct {
				Execution struct{ Outcome string } `json:"execution"`
			} `json:"metadata"`
		}
		_ = json.NewDecoder(r.Body).Decode(&event)
		if o := event.Metadata.Execution.Outcome; o != "" {
			reports <- strings.TrimPrefix(event.Tool, "mcp__files__") + " " + o
		}
		answer(200, nil, `{}`)(w, r)
	})
	d := startDecider(t, gateway)
	run := func(tool string, wait time.Duration) string {
		g, err := d.gateOf("files", "")
		if err != nil {
			t.Fatal(err)
		}
		d.o.Outcomes = wait
		return d.awaitOutcome(&admittedRun{gate: g, admitted: Admitted{call: mcp.Call{Server: "files", Name: tool, Arguments: json.RawMessage("{}")}, id: tool}, began: time.Now()})
	}
	shows := func(id, result string) {
		message, err := proto.Marshal(question(t, "tools/call", result, map[string]any{metadataCall: id}, "files"))
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, extCheckResponse, bytes.NewReader(frame(message)))
		if result := d.checkResponse(r); !bytes.Equal(result, extPasses("")) {
			t.Errorf("%s: %x", id, result)
		}
	}
	if id := run("at-once", 0); id != "" {
		t.Errorf("an id that nothing waits for: %q", id)
	}
	good, bad, odd := run("good", time.Hour), run("bad", time.Hour), run("odd", time.Hour)
	shows(good, `{"content":[]}`)
	shows(good, `{"isError":true}`) // again
	shows(bad, `{"content":[],"isError":true}`)
	shows(odd, `{"resultType":"task"}`)
	shows("made-up", `{}`)
	run("late", time.Nanosecond)
	var got []string
	for !slices.Contains(got, "late unknown") {
		got = append(got, <-reports)
	}
	if d.runningBytes != 0 {
		t.Errorf("%d bytes wait for nothing", d.runningBytes)
	}
	d.runningBytes = maxRunning - runningSize - len("{}") // room for one
	run("open", time.Hour)
	if id := run("no-room", time.Hour); id != "" {
		t.Errorf("without room: %q", id)
	}
	d.Close()
	if id := run("closed", time.Hour); id != "" {
		t.Errorf("after the end: %q", id)
	}
	d.Close()
	for len(reports) > 0 {
		got = append(got, <-reports)
	}
	slices.Sort(got)
	if want := []string{"at-once unknown", "bad failed", "closed unknown", "good succeeded", "late unknown", "no-room unknown", "odd unknown", "open unknown"}; !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
	// The id goes to the gateway as the metadata from which it comes back.
	result := extMessage("Result")
	if err := proto.Unmarshal(extPasses(good), result); err != nil {
		t.Fatal(err)
	}
	if a := answerOf(t, result); !a.pass || a.callID != good {
		t.Errorf("the id in the answer: %+v", a)
	}
}

// authority makes certificates for 127.0.0.1 and for clients.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert = a.issue(t, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue writes NAME.pem and NAME.key.
func (a *authority) issue(t *testing.T, name string, c *x509.Certificate) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by, a.key = c, key, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: raw}, name + ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(a.file(file), pem.EncodeToMemory(&block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// Beyond this machine only clients with a certificate are answered.
func TestAgentGatewayCertificates(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	ours.issue(t, "server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	o := agentGatewayOptions(t, answer(200, nil, `{}`))
	o.Cert, o.Key, o.ClientCA = ours.file("server.pem"), ours.file("server.key"), ours.file("ca.pem")
	client := &tls.Config{ServerName: "127.0.0.1", RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
	client.RootCAs.AddCert(ours.cert)
	with := func(a *authority) credentials.TransportCredentials {
		c := client.Clone()
		if a != nil {
			a.issue(t, "client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			pair, err := tls.LoadX509KeyPair(a.file("client.pem"), a.file("client.key"))
			if err != nil {
				t.Fatal(err)
			}
			// Whatever certificates the server asks for.
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		return credentials.NewTLS(c)
	}
	for name, c := range map[string]struct {
		who *authority
		ok  bool
	}{"ours": {ours, true}, "another's": {others, false}, "none": {nil, false}} {
		a := startDecide(t, o, with(c.who))
		err := a.Invoke(t.Context(), extCheckRequest, question(t, "tools/list", "", nil, "files"), extMessage("Result"))
		if (err == nil) != c.ok {
			t.Errorf("a certificate, %s: %v", name, err)
		}
	}
	for want, o := range map[string]DecideOptions{
		"--client-ca, or any machine": {Listen: "127.0.0.1:0", AgentGateway: "0.0.0.0:0", Cert: o.Cert, Key: o.Key},
		"--client-ca needs":           {Listen: "127.0.0.1:0", AgentGateway: "127.0.0.1:0", ClientCA: o.ClientCA},
		"no certificate":              {Listen: "127.0.0.1:0", AgentGateway: "127.0.0.1:0", ClientCA: o.Key, Cert: o.Cert, Key: o.Key},
		"no such file":                {Listen: "127.0.0.1:0", AgentGateway: "127.0.0.1:0", ClientCA: o.Key + "x", Cert: o.Cert, Key: o.Key},
	} {
		if err := Decide(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Whatever is read here, the protobuf library reads in the same way.
func FuzzExtQuestion(f *testing.F) {
	for _, q := range []*dynamicpb.Message{
		question(f, "tools/call", callParams, map[string]any{"sub": "dana", "iss": "a"}, "files"), question(f, "tools/list", "", nil, "files", "mail"),
		question(f, "tools/call", "", map[string]any{"n": 1, "o": map[string]any{"x": nil}, "l": []any{true}}),
	} {
		b, err := proto.Marshal(q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x0a})
	f.Add([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := readExtQuestion(b)
		if err != nil {
			return
		}
		m := extMessage("RawQuestion")
		if err := proto.Unmarshal(b, m); err != nil {
			t.Fatalf("read %+v, but the library: %v", q, err)
		}
		of := func(name string) protoreflect.Value {
			return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(name)))
		}
		if string(of("method").Bytes()) != q.method || !bytes.Equal(of("body").Bytes(), q.body) || !bytes.Equal(of("metadata").Bytes(), q.metadata) ||
			q.server != "" && (of("servers").List().Len() != 1 || string(of("servers").List().Get(0).Bytes()) != q.server) {
			t.Errorf("read %+v, but the library: %v", q, m)
		}
		texts, err := readExtMetadata(q.metadata)
		if err != nil {
			return
		}
		var s structpb.Struct
		err = proto.Unmarshal(q.metadata, &s)
		maps.DeleteFunc(s.GetFields(), func(_ string, v *structpb.Value) bool {
			_, null := v.GetKind().(*structpb.Value_NullValue)
			return null
		})
		if err != nil || len(s.GetFields()) != len(texts) {
			t.Fatalf("metadata %q, but the library: %v, %v", texts, &s, err)
		}
		for key, text := range texts {
			if v, is := s.GetFields()[key].GetKind().(*structpb.Value_StringValue); !is || v.StringValue != text {
				t.Errorf("metadata %q, but the library: %v", texts, &s)
			}
		}
	})
}

// A certificate that was renewed is shown without a restart.
func TestRenewedCertificateIsShown(t *testing.T) {
	a := newAuthority(t)
	first := a.issue(t, "gate", &x509.Certificate{DNSNames: []string{"localhost"}})
	l, err := listen("127.0.0.1:0", a.file("gate.pem"), a.file("gate.key"), "", "http/1.1", &logger{w: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	server := newHTTPServer(http.NotFoundHandler())
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	shown := func() *big.Int {
		t.Helper()
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // G402: the certificate is compared by its number
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber
	}
	if n := shown(); n.Cmp(first.SerialNumber) != 0 {
		t.Fatalf("certificate %s, want %s", n, first.SerialNumber)
	}
	second := a.issue(t, "gate", &x509.Certificate{DNSNames: []string{"localhost"}})
	later := time.Now().Add(time.Minute) // two writes in one tick of the clock differ
	if err := os.Chtimes(a.file("gate.pem"), later, later); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(patience); shown().Cmp(second.SerialNumber) != 0; {
		if time.Now().After(late) {
			t.Fatal("the renewed certificate is not shown")
		}
		time.Sleep(50 * time.Millisecond)
	}
}
