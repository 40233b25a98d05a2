package gateway

import (
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/internal/buildinfo"
)

// router is a ServeMux that knows its patterns, so that the description can be held against it.
type router struct {
	*http.ServeMux
	patterns []string
	panicked func(http.ResponseWriter, *http.Request)
}

// ServeHTTP answers a path with //, /./ or /../ like one that does not exist. The library would redirect to what it
// takes the path for.
func (m *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := r.URL.EscapedPath(); path.Clean("/"+p) != strings.TrimSuffix(p, "/") && p != "/" {
		r = r.Clone(r.Context())
		r.URL = &url.URL{Path: "/"}
	}
	defer func() {
		if recover() != nil {
			m.panicked(w, r)
		}
	}()
	m.ServeMux.ServeHTTP(w, r)
}

// Handle registers a handler.
func (m *router) Handle(pattern string, h http.Handler) {
	m.patterns = append(m.patterns, pattern)
	m.ServeMux.Handle(pattern, h)
}

// HandleFunc registers a function.
func (m *router) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	m.Handle(pattern, http.HandlerFunc(h))
}

// writeFunc sends the response of an endpoint.
type writeFunc func(w http.ResponseWriter, pattern string, out endpoint.Response)

// describe registers what says how the gateway is used: OpenAPI, a page and the schemas. They are part
// of the program, the same for every tenant but for the ways to sign in, and need no token.
func describe(mux *router, signIn gateway.SignIn, write writeFunc) {
	api, err := gateway.OpenAPI(buildinfo.Version(), signIn)
	serveText(mux, write, "GET /openapi.json", "application/json", api, err)
	page, err := gateway.Page()
	serveText(mux, write, "GET /docs", "text/html; charset=utf-8", page, err)
	for _, d := range gateway.Documents() {
		text, err := d.Text()
		serveText(mux, write, d.Pattern, d.Media, text, err)
	}
	const pattern = "GET /schemas/{protocol}/{name}/v1"
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		text, known := gateway.Schema(r.PathValue("protocol") + "/" + r.PathValue("name"))
		if !known {
			write(w, pattern, gateway.ProblemOf(gateway.NoSuchEndpoint).Response())
			return
		}
		write(w, pattern, described("application/schema+json", text))
	})
}

func serveText(mux *router, write writeFunc, pattern, media string, text []byte, err error) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
		if err != nil { // the text is made of constants
			write(w, pattern, gateway.ProblemOf(gateway.Panicked).Response())
			return
		}
		write(w, pattern, described(media, text))
	})
}

func described(media string, text []byte) endpoint.Response {
	return endpoint.Response{Status: http.StatusOK, Header: http.Header{"Content-Type": {media}, "Content-Security-Policy": {gateway.PagePolicy}}, Body: text}
}
