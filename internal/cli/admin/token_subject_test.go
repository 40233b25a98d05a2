package admin

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// A mapping whose subject is empty, or cannot be mapped, is refused before anything is asked of a
// server. It must not become a bearer token.
func TestEmptySubjectMakesNoToken(t *testing.T) {
	for _, args := range [][]string{
		{"--certificate-subject", ""}, {"--certificate-subject="}, {"--certificate-subject", "CN=a\x1b"}, {"--oidc-subject", "", "--oidc-issuer", ""},
		{"--oidc-subject", "a", "--oidc-issuer", ""}, {"--oidc-subject", "", "--oidc-issuer", "https://login.example"}, {"--oidc-issuer", ""}, {"--oidc-subject", ""},
		{"--certificate-subject", strings.Repeat("x", 2000)},
	} {
		var c tokenCreateCmd
		k, err := kong.New(&c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Parse(append([]string{"--for", "web1"}, args...)); err != nil {
			t.Fatal(err)
		}
		err = c.Run(context.Background(), ui.Stdio{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
		var usage ui.UsageError
		if !errors.As(err, &usage) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
