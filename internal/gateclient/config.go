// Package gateclient is what the gates share that stand in front of tools: where the gateway is, asking
// it for admission, waiting for a person's approval, and holding the receipt against the call. Begin
// reading with Config and Asker.
package gateclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/owner"
)

// Config is the file hook.json, the configuration of the gates. Either ReadyFile names the ready file of a
// `countersign up` on this machine, or the other members say where the gateway is and which publisher asks.
type Config struct {
	ReadyFile string `json:"ready_file,omitempty"`

	Gateway       string `json:"gateway,omitempty"`         // https://…, or http:// of this machine
	TokenFile     string `json:"token_file,omitempty"`      // a token of the role runtime
	PublicKeyFile string `json:"public_key_file,omitempty"` // checkpoint.pub
	Tenant        string `json:"tenant,omitempty"`
	Publisher     string `json:"publisher,omitempty"` // for which the token was made

	Budget  string `json:"budget,omitempty"`  // the longest time until an answer; default DefaultBudget
	Prompts bool   `json:"prompts,omitempty"` // report the texts of prompts and answers, not only their length
	Defer   bool   `json:"defer,omitempty"`   // end a headless run whose call waits for a person, where the agent can resume it

	ApprovalURL string `json:"approval_url,omitempty"` // the page where a person decides; {workflow} stands for the workflow's id

	Probe bool `json:"probe,omitempty"` // of `countersign hook doctor`: every call is marked as one that the admitter must deny
}

// DefaultBudget is well under the shortest time-out of an agent's hook, 30 s: when that ends, most
// agents run the call.
const DefaultBudget = 25 * time.Second

// MaxBudget is below the time-out that `countersign hook install` gives to agents, 60 s.
const MaxBudget = 50 * time.Second

// ReadyFileOf is the ready file that a command uses: that of its flag or, if neither a flag nor a configuration says where
// else the gateway is, that of the environment.
func ReadyFileOf(flag, elsewhere string) string {
	if flag == "" && elsewhere == "" {
		return os.Getenv("COUNTERSIGN_READY_FILE")
	}
	return flag
}

// DefaultConfigPath is hook.json in the user's configuration directory.
func DefaultConfigPath() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("finding the user's configuration directory: %w", err)
	}
	return filepath.Join(dir, "countersign", "hook.json"), nil
}

// ReadConfig reads a configuration.
func ReadConfig(path string) (Config, error) {
	var c Config
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, fmt.Errorf("there is no %s: run countersign hook install", path)
	}
	if err != nil {
		return c, fmt.Errorf("reading the configuration: %w", err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("%s is not valid JSON: run countersign hook install", path)
	}
	return c, nil
}

// AnswerBudget is the time that an answer may take.
func (c Config) AnswerBudget() (time.Duration, error) {
	if c.Budget == "" {
		return DefaultBudget, nil
	}
	d, err := time.ParseDuration(c.Budget)
	if err != nil || d < time.Second || d > MaxBudget {
		return DefaultBudget, fmt.Errorf("the budget is no duration of 1s to %v", MaxBudget)
	}
	return d, nil
}

// Peer is the gateway, and the identity with which it is asked.
type Peer struct {
	gateway, token    string
	publicKey         string
	tenant, publisher string
}

// As is the same gateway, asked by another caller.
func (p Peer) As(token, publisher string) Peer {
	p.token, p.publisher = token, publisher
	return p
}

// User is the user of the gateway for which the peer asks.
func (p Peer) User() string { return p.publisher }

// readyFile is what a gate needs of the file that `countersign up` writes.
type readyFile struct {
	Tenant     string       `json:"tenant"`
	GatewayURL string       `json:"gateway_url"`
	PublicKey  string       `json:"public_key"`
	Owner      *owner.Owner `json:"owner"`
	Roles      struct {
		Runtime struct {
			Publisher string `json:"publisher"`
			Token     string `json:"token"`
		} `json:"runtime"`
	} `json:"roles"`
}

// Peer resolves the configuration.
func (c Config) Peer() (p Peer, err error) {
	if c.ReadyFile != "" {
		p, err = peerOfReadyFile(c.ReadyFile)
	} else {
		p, err = c.peerOfFiles()
	}
	if err != nil {
		return Peer{}, err
	}
	if p.gateway == "" || p.token == "" || p.publicKey == "" || p.tenant == "" || p.publisher == "" {
		return Peer{}, errors.New("gateway, token, public key, tenant and publisher must all be known: run countersign hook install")
	}
	if err := CheckURL(p.gateway); err != nil {
		return p, fmt.Errorf("the gateway: %w", err)
	}
	return p, nil
}

func peerOfReadyFile(path string) (Peer, error) {
	b, err := readSecret(path)
	if err != nil {
		return Peer{}, fmt.Errorf("the ready file (is countersign up running?): %w", err)
	}
	var r readyFile
	if err := json.Unmarshal(b, &r); err != nil {
		return Peer{}, errors.New("the ready file is not valid JSON: start countersign up again")
	}
	if r.Owner.Gone() { // another program may listen there and must not get the token
		return Peer{}, errors.New("the ready file was left behind: the countersign up of that time no longer runs; start it again, and make the file of an added user again by countersign user add")
	}
	return Peer{r.GatewayURL, r.Roles.Runtime.Token, r.PublicKey, r.Tenant, r.Roles.Runtime.Publisher}, nil
}

func (c Config) peerOfFiles() (Peer, error) {
	token, err := readSecret(c.TokenFile)
	if err != nil {
		return Peer{}, fmt.Errorf("the token: %w", err)
	}
	key, err := os.ReadFile(c.PublicKeyFile)
	if err != nil {
		return Peer{}, fmt.Errorf("the public key: %w", err)
	}
	return Peer{c.Gateway, strings.TrimSpace(string(token)), strings.TrimSpace(string(key)), c.Tenant, c.Publisher}, nil
}

// readSecret reads a file that only its owner may read.
func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s can be read by others: chmod 600 it", path)
	}
	return os.ReadFile(path)
}

// CheckURL reports an address to which a token would travel in clear.
func CheckURL(text string) error {
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		ip := net.ParseIP(u.Hostname())
		local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
		if u.Scheme == "https" || u.Scheme == "http" && local {
			return nil
		}
	}
	return errors.New("the address must begin with https://, or with http:// and name this machine")
}

// Check reports what is wrong with a configuration: a file that cannot be read, a missing member, an
// address that would send the token in clear.
func (c Config) Check() error {
	if _, err := c.AnswerBudget(); err != nil {
		return err
	}
	if c.ApprovalURL != "" && CheckURL(c.ApprovalURL) != nil {
		return errors.New("the approval URL must begin with https://, or with http:// and name this machine")
	}
	_, err := c.Peer()
	return err
}
