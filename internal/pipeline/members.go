package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/filelock"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/supervise"
	"github.com/countersign-dev/countersign/streams"
)

// Tenants and users are added to a running pipeline, and removed from it (removals.go), through its state
// file: a command writes it, the pipeline sees the change, gives the NATS server its users, stores tokens and
// starts gateways, and then writes down which generation of the state is in force. Only the owner of the data
// directory can do so.

// maxTenant bounds a tenant's name: user names contain it.
const maxTenant = 48

// ErrMember reports a tenant or a user that cannot be added or removed.
var ErrMember = errors.New("it cannot be done")

// Waiting times of changes.
const (
	applyTimeout = 20 * time.Second // for a generation to be in force
	applyRetry   = 2 * time.Second  // between two tries
	gatewayRetry = 10 * time.Second // between two tries to start the gateway of an added tenant
	stateLock    = 10 * time.Second // for another command that changes the state
)

// inForce is the file that tells which generation of the state is in force.
type inForce struct {
	Generation int               `json:"generation"`
	Error      string            `json:"error,omitempty"` // the reason why a later one is not
	Gateways   map[string]string `json:"gateways"`        // URL by tenant
}

const inForceFile = "state-in-force.json"

// CheckTenant reports what is wrong with a tenant's name.
func CheckTenant(name string) error {
	if subject.Escape(name) != name || len(name) > maxTenant {
		return fmt.Errorf("the tenant %.60q must be letters, digits, _ and -, at most %d", name, maxTenant)
	}
	return nil
}

// AddTenant adds a tenant to a running pipeline and returns once its users are served: the content for a
// ready file of that tenant. A tenant that was added before is left as it is.
func AddTenant(ctx context.Context, up target.Ready, name string) (target.Ready, error) {
	if err := CheckTenant(name); err != nil {
		return target.Ready{}, fmt.Errorf("%w: %w", ErrMember, err)
	}
	state, gateways, err := change(ctx, up, func(s *upState) (bool, error) {
		if slices.Contains(s.tenants(up.Tenant), name) {
			return false, nil
		}
		s.Tenants = append(s.Tenants, name)
		return true, nil
	})
	if err != nil {
		return target.Ready{}, err
	}
	out := readyOf(up, name, gateways)
	for _, r := range tokenRoles {
		out.Roles[string(r)] = state.credentials(state.usual(name, r))
	}
	return out, dropRevoked(ctx, up, out)
}

// AddUser adds a user to a tenant of a running pipeline and returns once it is served: the content for a
// ready file of that user. A user that was added before, in the same role, is left as it is.
func AddUser(ctx context.Context, up target.Ready, tenant, name string, role streams.Role) (target.Ready, error) {
	m := tenantUser{tenant, name, role}
	if !slices.Contains(tokenRoles, role) {
		return target.Ready{}, fmt.Errorf("%w: no user can be added in the role %.20q", ErrMember, role)
	}
	state, gateways, err := change(ctx, up, func(s *upState) (bool, error) {
		switch {
		case slices.Contains(s.Members, m):
			return false, nil
		case !slices.Contains(s.tenants(up.Tenant), tenant):
			return false, fmt.Errorf("%w: there is no tenant %.60q (countersign tenant add)", ErrMember, tenant)
		case s.Passwords[name] != "":
			return false, fmt.Errorf("%w: a user %.60q exists already; names are shared by all tenants", ErrMember, name)
		}
		s.Members = append(s.Members, m)
		return true, nil
	})
	if err != nil {
		return target.Ready{}, err
	}
	out := readyOf(up, tenant, gateways)
	out.Roles[string(role)] = state.credentials(state.userOf(m))
	return out, dropRevoked(ctx, up, out)
}

// dropRevoked takes the tokens that are revoked or expired out of a ready file: the state file knows only which
// tokens were made.
func dropRevoked(ctx context.Context, up, out target.Ready) error {
	operator := up.Roles[target.Operator]
	nc, err := streams.Connect(ctx, streams.ConnectOptions{URL: up.NATSURL, User: operator.User, Password: operator.Password, InboxPrefix: operator.InboxPrefix, Name: "countersign tokens"})
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for name, r := range out.Roles {
		id, ok := token.IDOf(r.Token)
		if !ok {
			continue
		}
		e, err := streams.KVLast(ctx, js, streams.BucketTokens, token.Key(out.Tenant, id))
		if err != nil {
			return fmt.Errorf("reading the tokens: %w", err)
		}
		if e == nil { // up has no gateway: the token is stored once it has
			continue
		}
		held, err := token.Decode(e.Value)
		if err != nil || e.Deleted || held.RevokedAt != nil || !time.Now().Before(held.ExpiresAt) {
			r.Token = ""
			out.Roles[name] = r
		}
	}
	return nil
}

// readyOf is a ready file of one tenant without users: it leads to no evidence and to no operator.
func readyOf(up target.Ready, tenant string, gateways map[string]string) target.Ready {
	return target.Ready{NATSURL: up.NATSURL, GatewayURL: gateways[tenant], PublicKey: up.PublicKey, Tenant: tenant, Owner: up.Owner,
		Roles: map[string]target.Role{}, PIDs: map[string]int{}}
}

// credentials are those of a user in a ready file.
func (s upState) credentials(u streams.User) target.Role {
	r := target.Role{User: u.Name, Password: u.Password, InboxPrefix: u.Inbox(), Token: s.Tokens[u.Name]}
	if u.Role == streams.RoleRuntime {
		r.Publisher = u.Name
	}
	return r
}

// stateEdit edits a state and reports whether it has changed it.
type stateEdit func(*upState) (changed bool, err error)

// change changes the state of a running pipeline and waits until the change is in force.
func change(ctx context.Context, up target.Ready, edit stateEdit) (upState, map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	state, err := editState(ctx, up, edit)
	if err != nil {
		return state, nil, err
	}
	at := inForce{}
	for {
		text, err := os.ReadFile(filepath.Join(up.DataDir, inForceFile))
		if err == nil && json.Unmarshal(text, &at) == nil && at.Generation >= state.Generation {
			return state, at.Gateways, nil
		}
		if retry.Sleep(ctx, lookEvery/4) != nil {
			return state, nil, fmt.Errorf("it is stored, and not in force yet: %s", cmp.Or(at.Error, "`countersign up` has not taken it over; see its log"))
		}
	}
}

// editState writes an edited state, with the secrets of new users.
func editState(ctx context.Context, up target.Ready, edit stateEdit) (upState, error) {
	path := filepath.Join(up.DataDir, stateFile)
	if up.DataDir == "" {
		return upState{}, fmt.Errorf("%w: give the ready file of `countersign up` itself", ErrMember)
	}
	if err := checkOwner(path); err != nil {
		return upState{}, err
	}
	unlock, err := lockState(ctx, path)
	if err != nil {
		return upState{}, err
	}
	defer unlock()
	s, err := readState(path)
	if err != nil {
		return s, fmt.Errorf("reading the state of `countersign up`: %w", err)
	}
	s.Generation++
	if changed, err := edit(&s); err != nil || !changed {
		s.Generation--
		return s, err
	}
	if _, err := s.fillSecrets(up.Tenant); err != nil {
		return s, err
	}
	config := NATSConfig{StoreDir: "unused", Services: s.serviceUsers(), Tenants: s.tenantConfigs(up.Tenant)}
	if _, err := config.render(); err != nil {
		return s, fmt.Errorf("%w: %w", ErrMember, err)
	}
	return s, s.write()
}

// checkOwner refuses another user than the one that `up` runs as, root too: `up` could not read what
// that user writes.
func checkOwner(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("reading the state of `countersign up`: %w", err)
	}
	if owner, is := info.Sys().(*syscall.Stat_t); is && int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to another user; run the command as that user (sudo -u)", ErrMember, path)
	}
	return nil
}

// lockState keeps other commands from changing the state file.
func lockState(ctx context.Context, path string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, stateLock)
	defer cancel()
	f, err := filelock.Wait(ctx, path+".lock", nil)
	if errors.Is(err, filelock.ErrHeld) {
		err = errors.New("another command changes the users; try again")
	}
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// beginFollowingState notes what is in force, and what is missing, and from then on puts in force what changes.
func (p *Pipeline) beginFollowingState(missing error) error {
	if err := p.noteInForce(p.currentState().Generation, missing); err != nil {
		return err
	}
	p.unfollow = daemon.Background(context.Background(), p.followState)
	return nil
}

// followState puts each generation of the state in force until ctx ends, and starts the gateways that do not run
// yet. What fails is tried again. It renews tokens as well.
func (p *Pipeline) followState(ctx context.Context) {
	pause := lookEvery
	if len(p.missingGateways()) > 0 {
		pause = gatewayRetry
	}
	for retry.Sleep(ctx, pause) == nil {
		pause = lookEvery
		p.checkTokens(ctx)
		held := p.currentState()
		s, err := readState(held.path)
		switch missing := p.missingGateways(); {
		case err != nil:
		case s.Generation != held.Generation:
			err = p.apply(ctx, s)
		case len(missing) == 0:
			continue
		default:
			if err = p.startGateways(ctx); err == nil {
				err = p.noteInForce(held.Generation, nil)
			}
			pause = gatewayRetry
		}
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, fs.ErrNotExist): // the data directory is being removed
		case err != nil:
			pause = max(pause, applyRetry)
			p.opt.Log.Error().Err(err).Msg("changed users are not in force; it is tried again")
			_ = p.noteInForce(held.Generation, err)
		default:
			p.opt.Log.Info().Int("generation", s.Generation).Msg("changed users are in force")
		}
	}
}

// apply puts a state in force. The earlier one stays noted until all of it is.
func (p *Pipeline) apply(ctx context.Context, s upState) (err error) {
	p.mu.Lock()
	held := p.state
	p.state = s
	p.noteEnding(held)
	p.mu.Unlock()
	defer func() {
		if err != nil {
			p.mu.Lock()
			p.state.Generation = held.Generation // tried again
			p.mu.Unlock()
		}
	}()
	p.stopGateways(ctx) // while their users exist
	file, config, err := p.writeNATSConfig()
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, applyTimeout/2)
	defer cancel()
	if err := awaitApplied(within, file, config); err != nil {
		return err
	}
	if err := p.endRemoved(ctx, held.Generation); err != nil {
		return err
	}
	if err := p.awaitRefused(within); err != nil {
		return err
	}
	if slices.Contains(p.opt.Services, procGateway) {
		if err := p.prepareGateway(ctx); err != nil {
			return err
		}
	}
	if err := p.startGateways(ctx); err != nil {
		return err
	}
	return p.noteInForce(s.Generation, nil)
}

// missingGateways are the tenants whose gateway never ran.
func (p *Pipeline) missingGateways() []string {
	if !slices.Contains(p.opt.Services, procGateway) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gateways.missing(p.state.tenants(p.opt.Tenant))
}

// startGateways starts the gateways of added tenants that have none yet. One that does not start keeps no other
// from starting.
func (p *Pipeline) startGateways(ctx context.Context) error {
	var errs []error
	var failed []string
	for _, tenant := range p.missingGateways() {
		err := p.sup.Start(ctx, supervise.Spec{Name: p.gateways.process(tenant), Start: p.startService(procGateway, tenant)})
		if err != nil {
			errs, failed = append(errs, err), append(failed, p.gateways.process(tenant))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = failed
	return errors.Join(errs...)
}

func (p *Pipeline) noteInForce(generation int, problem error) error {
	p.mu.Lock()
	at := inForce{Generation: generation, Gateways: maps.Clone(p.gateways.urls)}
	p.mu.Unlock()
	if problem != nil {
		at.Error = strings.ReplaceAll(problem.Error(), "\n", "; ")
	}
	text, err := json.Marshal(at)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(p.opt.DataDir, inForceFile), text, 0o600)
}
