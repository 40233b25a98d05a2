package admit

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/gateway"
	"github.com/countersign-dev/countersign/internal/service/supervise"
	"github.com/countersign-dev/countersign/streams"
)

// tlsStop is how long the gateway with TLS may take to end its streams.
const tlsStop = 20 * time.Second

// idleStreamsOverTLS is idleStreams with a second gateway of the same tenant, which has a certificate.
func idleStreamsOverTLS(ctx context.Context, p *pipeline.Pipeline, n int) (r measure.Latency, err error) {
	dir, log, remove, err := measure.WorkDir()
	if err != nil {
		return r, err
	}
	defer remove()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := writeCertificate(cert, key); err != nil {
		return r, err
	}
	exe, err := os.Executable()
	if err != nil {
		return r, err
	}
	ready, user := p.Ready(), p.Service(streams.RoleGateway)
	var info daemon.ReadyInfo
	proc, err := supervise.Run(ctx, supervise.Command{Path: exe, Args: []string{pipeline.ServiceArg, gateway.ServiceName}, Log: log, Env: []string{
		"COUNTERSIGN_NATS_URL=" + ready.NATSURL, "COUNTERSIGN_NATS_USER=" + user.Name, "COUNTERSIGN_NATS_PASSWORD=" + user.Password, "COUNTERSIGN_INBOX_PREFIX=" + user.Inbox(),
		"COUNTERSIGN_HTTP=127.0.0.1:0", "COUNTERSIGN_TENANT=" + ready.Tenant, "COUNTERSIGN_GATEWAY_LISTEN=127.0.0.1:0",
		"COUNTERSIGN_GATEWAY_TLS_CERT=" + cert, "COUNTERSIGN_GATEWAY_TLS_KEY=" + key,
	}}, &info)
	if err != nil {
		return r, err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), tlsStop)
		defer cancel()
		err = errors.Join(err, proc.Stop(stop))
	}()
	over := target.Ready{GatewayURL: info.URL, Roles: ready.Roles, PIDs: map[string]int{"gateway": proc.PID()}}
	if r, err = idleStreams(ctx, over, n); err != nil {
		return r, err
	}
	r.What = "idle streams over TLS"
	return r, nil
}

// writeCertificate makes a certificate that signs itself.
func writeCertificate(certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	form := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, &form, &form, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600),
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
}

// dialTLS opens a connection to a gateway whose certificate signs itself: memory is measured, not trust.
func dialTLS(ctx context.Context, host string) (net.Conn, error) {
	return (&tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}}).DialContext(ctx, "tcp", host) //nolint:gosec // G402: the benchmark's own server
}
