package gateway

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

//go:embed components.json
var componentsText []byte

type object = map[string]any

// SignIn is how callers may sign in to a gateway, besides by its tokens.
type SignIn struct {
	Certificates bool   // of clients
	Issuer       string // of JWTs; "" for none
}

// OpenAPI is the description of the gateway in OpenAPI 3.1, JSON.
func OpenAPI(version string, in SignIn) ([]byte, error) {
	var schemas object
	if err := json.Unmarshal(componentsText, &schemas); err != nil {
		return nil, err
	}
	paths := object{}
	for _, d := range Descriptions() {
		method, path := d.Split()
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(method)] = d.operation(path, in)
	}
	return json.Marshal(object{
		"openapi": "3.1.0",
		"info":    object{"title": "Countersign gateway", "version": version, "description": "Anything but a 200 with the verdict allow is no permission. A header that is too large is answered 431 everywhere."},
		"paths":   paths, "components": object{"securitySchemes": in.schemes(), "schemas": schemas},
	})
}

// Names of the security schemes.
const (
	schemeBearer      = "bearer"
	schemeHeader      = "tokenHeader"
	schemeCertificate = "certificate"
	schemeOIDC        = "oidc"
)

func (in SignIn) schemes() object {
	out := object{schemeBearer: object{"type": "http", "scheme": "bearer"}}
	for _, header := range tokenHeaders() { // one name for all
		out[schemeHeader] = object{"type": "apiKey", "in": "header", "name": header}
	}
	if in.Certificates {
		out[schemeCertificate] = object{"type": "mutualTLS"}
	}
	if in.Issuer != "" {
		out[schemeOIDC] = object{"type": "openIdConnect", "openIdConnectUrl": strings.TrimSuffix(in.Issuer, "/") + "/.well-known/openid-configuration"}
	}
	return out
}

// tokenHeaders are the headers besides Authorization that may bring a token, by the pattern of the endpoint.
func tokenHeaders() map[string]string {
	out := map[string]string{}
	for _, row := range Rows() {
		if row.TokenHeader != "" {
			out[row.Pattern] = row.TokenHeader
		}
	}
	return out
}

// security lists the ways to sign in to an endpoint, of which one is enough.
func (d Description) security(in SignIn) (list []object) {
	for name := range in.schemes() {
		if name != schemeHeader || tokenHeaders()[d.Pattern] != "" {
			list = append(list, object{name: []string{}})
		}
	}
	slices.SortFunc(list, func(a, b object) int {
		return strings.Compare(slices.Collect(maps.Keys(a))[0], slices.Collect(maps.Keys(b))[0])
	})
	return list
}

func (d Description) operation(path string, in SignIn) object {
	responses := object{}
	for _, status := range d.Statuses {
		responses[strconv.Itoa(status)] = d.response(status)
	}
	op := object{"operationId": d.operationID(), "summary": d.Summary, "responses": responses}
	if d.Roles != "" {
		op["security"], op["description"] = d.security(in), "Role of the token: "+d.Roles+"."
	}
	if strings.HasPrefix(d.Pattern, http.MethodPost) {
		content := object{mediaJSON: object{"schema": schemaRef(d.Body)}}
		for _, media := range d.Media {
			content[media] = object{"schema": object{}}
		}
		op["requestBody"] = object{"required": !d.BodyOptional, "content": content}
	}
	if parameters := d.parameters(path); parameters != nil {
		op["parameters"] = parameters
	}
	return op
}

// operationID is the name by which generated clients call the endpoint: its method and the words of its path.
func (d Description) operationID() string {
	method, path := d.Split()
	name := strings.ToLower(method)
	for word := range strings.FieldsFuncSeq(path, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}

// response describes the answers with a status. An answer that asks for a verdict has the headers of NATS.
func (d Description) response(status int) object {
	out := object{"description": http.StatusText(status)}
	medias, schema := []string{mediaJSON}, cmp.Or(d.Error, "Error")
	if status < http.StatusBadRequest {
		schema = d.Reply
		if d.ReplyMedia != nil {
			medias = d.ReplyMedia
		}
	}
	content := object{}
	for _, media := range medias {
		switch inJSON := strings.HasSuffix(media, "json"); {
		case status < http.StatusOK || status == http.StatusNoContent || inJSON && schema == "":
		case inJSON:
			content[media] = object{"schema": schemaRef(schema)}
		default:
			content[media] = object{"schema": object{"type": "string"}}
		}
	}
	if len(content) > 0 {
		out["content"] = content
	}
	var headers []string
	if d.asks() {
		headers = returned
	}
	if d.Roles != "" && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) {
		headers = append(slices.Clone(headers), "Retry-After")
	}
	described := object{}
	for _, name := range headers {
		described[name] = object{"schema": object{"type": "string"}}
	}
	if len(described) > 0 {
		out["headers"] = described
	}
	return out
}

// asks reports whether an endpoint answers with a verdict.
func (d Description) asks() bool { return d.Error == "Refusal" || d.Reply == "AANAReply" }

// stores reports whether an endpoint puts events on the log.
func (d Description) stores() bool { return d.Reply == "Stored" }

func (d Description) parameters(path string) (list []object) {
	for rest := path; ; {
		_, after, found := strings.Cut(rest, "{")
		if !found {
			break
		}
		name, behind, _ := strings.Cut(after, "}")
		p := parameter(name, "path", "")
		if d.Values != nil {
			p["schema"].(object)["enum"] = d.Values
		}
		list, rest = append(list, p), behind
	}
	for _, name := range slices.Sorted(maps.Keys(d.Query)) {
		list = append(list, parameter(name, "query", d.Query[name]))
	}
	if slices.Contains(d.Media, mediaEvent) {
		for _, name := range []string{"id", "source", "specversion", "type"} {
			list = append(list, parameter("ce-"+name, "header", "Of a CloudEvent in binary mode, whose body is the event."))
		}
	}
	if slices.Contains(d.ReplyMedia, mediaStream) {
		list = append(list, parameter("Last-Event-ID", "header", "The id of the last event that the client has."))
	}
	if d.asks() || d.stores() {
		for _, name := range forwarded {
			list = append(list, parameter(name, "header", ""))
		}
	}
	return list
}

func parameter(name, in, description string) object {
	p := object{"name": name, "in": in, "schema": object{"type": "string"}}
	if in == "path" {
		p["required"] = true
	}
	if description != "" {
		p["description"] = description
	}
	return p
}

// schemaRef refers to a schema: of components.json, or of package schemas; any document for "".
func schemaRef(name string) object {
	switch {
	case name == "":
		return object{}
	case unicode.IsUpper(rune(name[0])):
		return object{"$ref": "#/components/schemas/" + name}
	}
	return object{"$ref": schemaPath(name)}
}
