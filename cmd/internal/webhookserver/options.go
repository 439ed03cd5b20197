// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/trainyard/trainyard/cmd/internal/process"
)

// The files in a directory with certificates.
const (
	CertFile = "tls.crt"
	KeyFile  = "tls.key"
)

// Options say whether and where a process serves webhooks, and with which certificates.
type Options struct {
	// Configuration is the name of the process' Mutating- and ValidatingWebhookConfiguration. It is also the field
	// manager of their authority.
	Configuration string
	// Address is host:port, or "0" for no webhooks.
	Address string
	// CertDir is a directory with CertFile and KeyFile. Somebody else renews them.
	CertDir string
	// Service is namespace/name. The process makes certificates for this Service.
	Service string
}

// Words are the parts of the flags' descriptions that differ between processes.
type Words struct {
	// Manifests is where the webhook configurations are, and Process who serves them, such as "the agent".
	Manifests, Process string
	// Readiness says whether the process is ready before the webhooks are served.
	Readiness string
}

// AddFlags adds a flag for each option but Configuration.
func (o *Options) AddFlags(fs *pflag.FlagSet, words Words) {
	fs.StringVar(&o.Address, "webhook-bind-address", o.Address,
		"`host:port` of the admission webhooks of "+words.Manifests+", or 0 for none. They need certificates, by one of the next two flags; without, they are not served. "+words.Readiness+" All replicas serve.")
	fs.StringVar(&o.CertDir, "webhook-cert-dir", o.CertDir,
		"`directory` with "+CertFile+" and "+KeyFile+" of the webhooks, read again when they change.")
	fs.StringVar(&o.Service, "webhook-service", o.Service,
		"Service (`namespace/name`) through which the API server reaches the webhooks. "+words.Process+" then makes their certificates itself, keeps them in the Secret <name>-cert beside the Service, renews them, and writes the authority's into the webhook configurations "+o.Configuration+". Secret and configurations must exist.")
}

// Enabled is true if webhooks are served.
func (o *Options) Enabled() bool {
	return o.Address != "0" && (o.CertDir != "" || o.Service != "")
}

// Validate returns all faults at once. Each fault names its flag.
func (o *Options) Validate() (faults []error) {
	if err := process.CheckAddress(o.Address); err != nil {
		faults = append(faults, fmt.Errorf("--webhook-bind-address: %w", err))
	} else if _, _, err := o.listen(); err != nil {
		faults = append(faults, err)
	}
	if o.CertDir != "" && o.Service != "" {
		faults = append(faults, errors.New("--webhook-cert-dir and --webhook-service: use only one of them"))
	}
	if o.Service != "" {
		if _, err := ServiceKey(o.Service); err != nil {
			faults = append(faults, fmt.Errorf("--webhook-service: %w", err))
		}
	}
	return faults
}

// listen returns host and port of the address, or zero values for "0".
func (o *Options) listen() (host string, port int, err error) {
	if o.Address == "0" {
		return "", 0, nil
	}
	host, text, err := net.SplitHostPort(o.Address)
	if err != nil {
		return "", 0, err
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 {
		return "", 0, fmt.Errorf("--webhook-bind-address: port %q is not a number from 1 to 65535", text)
	}
	return host, int(number), nil
}

// ServiceKey reads namespace/name of a Service.
func ServiceKey(text string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, fmt.Errorf("%q is not namespace/name", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// New returns the server and, if the process makes certificates itself, the certificates, which must be added to the
// controller manager. Both are nil if the process serves no webhooks.
func (o *Options) New() (webhook.Server, *Certificates, error) {
	if !o.Enabled() {
		return nil, nil, nil
	}
	host, port, err := o.listen()
	if err != nil {
		return nil, nil, err
	}
	if o.CertDir != "" {
		if _, err := tls.LoadX509KeyPair(filepath.Join(o.CertDir, CertFile), filepath.Join(o.CertDir, KeyFile)); err != nil {
			return nil, nil, fmt.Errorf("load certificate in --webhook-cert-dir: %w", err)
		}
		return webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: o.CertDir}), nil, nil
	}
	service, err := ServiceKey(o.Service)
	if err != nil {
		return nil, nil, fmt.Errorf("--webhook-service: %w", err)
	}
	certs, err := newCertificates(service, o.Configuration)
	if err != nil {
		return nil, nil, err
	}
	server := webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: certs.dir})
	return &waitingServer{Server: server, ready: certs.written}, certs, nil
}

// waitingServer starts when the certificates exist. Controllers do not wait for them.
type waitingServer struct {
	webhook.Server
	ready <-chan struct{}
}

// Start serves until ctx ends.
func (s *waitingServer) Start(ctx context.Context) error {
	select {
	case <-s.ready:
		return s.Server.Start(ctx)
	case <-ctx.Done():
		return nil
	}
}
