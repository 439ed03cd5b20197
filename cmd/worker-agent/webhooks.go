// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/trainyard/trainyard/cmd/internal/process"
	"github.com/trainyard/trainyard/controllers/worker/trainjob"
	"github.com/trainyard/trainyard/webhooks"
)

// The files in a directory with certificates.
const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
)

// webhookOptions say whether and where the agent serves webhooks, and with which certificates.
type webhookOptions struct {
	// address is host:port, or "0" for no webhooks.
	address string
	// certDir is a directory with certFile and keyFile. Somebody else renews them.
	certDir string
	// service is namespace/name. The agent makes certificates for this Service.
	service string
}

func (o *webhookOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.address, "webhook-bind-address", o.address,
		"`host:port` of the admission webhooks of config/webhook, or 0 for none. They need certificates, by one of the next two flags; without, they are not served. With them, the agent is ready only when they are served. All replicas serve.")
	fs.StringVar(&o.certDir, "webhook-cert-dir", o.certDir,
		"`directory` with "+certFile+" and "+keyFile+" of the webhooks, read again when they change.")
	fs.StringVar(&o.service, "webhook-service", o.service,
		"Service (`namespace/name`) through which the API server reaches the webhooks. The agent then makes their certificates itself, keeps them in the Secret <name>-cert beside the Service, renews them, and writes the authority's into the webhook configurations "+webhookConfiguration+". Secret and configurations must exist.")
}

func (o *webhookOptions) enabled() bool {
	return o.address != "0" && (o.certDir != "" || o.service != "")
}

// validate returns all faults at once.
func (o *webhookOptions) validate() (faults []error) {
	if err := process.CheckAddress(o.address); err != nil {
		faults = append(faults, fmt.Errorf("--webhook-bind-address: %w", err))
	} else if _, _, err := o.listen(); err != nil {
		faults = append(faults, err)
	}
	if o.certDir != "" && o.service != "" {
		faults = append(faults, errors.New("--webhook-cert-dir and --webhook-service: use only one of them"))
	}
	if o.service != "" {
		if _, err := o.serviceKey(); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

// listen returns host and port of the address, or zero values for "0".
func (o *webhookOptions) listen() (host string, port int, err error) {
	if o.address == "0" {
		return "", 0, nil
	}
	host, text, err := net.SplitHostPort(o.address)
	if err != nil {
		return "", 0, err
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 {
		return "", 0, fmt.Errorf("--webhook-bind-address: port %q is not a number from 1 to 65535", text)
	}
	return host, int(number), nil
}

func (o *webhookOptions) serviceKey() (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(o.service, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, fmt.Errorf("--webhook-service: %q is not namespace/name", o.service)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// newWebhookServer returns the server and, if the agent makes certificates itself, the certificates, which must be
// added to the manager. Both are nil if the agent serves no webhooks.
func (o *webhookOptions) newWebhookServer() (webhook.Server, *certificates, error) {
	if !o.enabled() {
		return nil, nil, nil
	}
	host, port, err := o.listen()
	if err != nil {
		return nil, nil, err
	}
	if o.certDir != "" {
		if _, err := tls.LoadX509KeyPair(filepath.Join(o.certDir, certFile), filepath.Join(o.certDir, keyFile)); err != nil {
			return nil, nil, fmt.Errorf("load certificate in --webhook-cert-dir: %w", err)
		}
		return webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: o.certDir}), nil, nil
	}
	service, err := o.serviceKey()
	if err != nil {
		return nil, nil, err
	}
	certs, err := newCertificates(service)
	if err != nil {
		return nil, nil, err
	}
	server := webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: certs.dir})
	return &waitingServer{Server: server, ready: certs.written}, certs, nil
}

// setUpWebhooks makes the manager serve the webhooks on server.
func setUpWebhooks(ctx context.Context, mgr ctrl.Manager, server webhook.Server, certs *certificates) error {
	if certs != nil {
		if err := certs.addTo(ctx, mgr); err != nil {
			return err
		}
	}
	if err := mgr.AddReadyzCheck("webhooks", server.StartedChecker()); err != nil {
		return fmt.Errorf("add readiness check of webhooks: %w", err)
	}
	return webhooks.Add(ctx, mgr, webhooks.Options{NewRuntimes: trainjob.NewRuntimes})
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
