// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/trainyard/trainyard/cmd/internal/process"
	"github.com/trainyard/trainyard/cmd/internal/webhookserver"
	"github.com/trainyard/trainyard/gateway"
)

const (
	// gatewayConfigMap is the name of the ConfigMap, in the manager's namespace, that says how to reach the gateway.
	gatewayConfigMap = "trainyard-gateway"
	// gatewayHeaderTimeout is how long a client may take for the headers of a request.
	gatewayHeaderTimeout = 10 * time.Second
	// minGatewayTimeout is the shortest time in which a worker that is far away can answer.
	minGatewayTimeout = 100 * time.Millisecond
	// gatewayIdle is after how long an idle connection of a client is closed.
	gatewayIdle = 2 * time.Minute
	// maxGatewayHeader bounds these headers. Tokens have some kilobytes.
	maxGatewayHeader = 64 << 10
	// gatewayGrace is how long requests may go on when the process ends.
	gatewayGrace = 2 * time.Second
)

// gatewayOptions say whether and where the gateway is served.
type gatewayOptions struct {
	// address is host:port, or "0" for none.
	address string
	// certDir has the certificate. Without it the process makes one for service, namespace/name.
	certDir, service string
	// url is the address for users.
	url string
	// timeout is how long a worker may take for an answer.
	timeout time.Duration
}

func (o *gatewayOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.address, "gateway-bind-address", o.address,
		"`host:port` of the gateway, through which users reach the hub's API with the pods, logs and Events of jobs on workers, or 0 for none. It needs a certificate, by one of the next two flags. All replicas serve.")
	fs.StringVar(&o.certDir, "gateway-cert-dir", o.certDir,
		"`directory` with "+webhookserver.CertFile+" and "+webhookserver.KeyFile+" of the gateway, read again when they change.")
	fs.StringVar(&o.service, "gateway-service", o.service,
		"Service (`namespace/name`) of the gateway. The manager then makes the gateway's certificate itself, for the Service and the host of --gateway-url, keeps it in the Secret <name>-cert beside the Service, which must exist, and renews it.")
	fs.StringVar(&o.url, "gateway-url", o.url,
		"`URL` by which users reach the gateway, such as https://gateway.example.com. It is published in the ConfigMap "+gatewayConfigMap+" of the manager's namespace, if there is one. Without it, the name of --gateway-service in the cluster.")
	fs.DurationVar(&o.timeout, "gateway-worker-timeout", o.timeout,
		"How long a worker may take for an answer to the gateway. Then lists come without its pods, with a warning that names it.")
}

func (o *gatewayOptions) enabled() bool { return o.address != "0" }

func (o *gatewayOptions) validate() (faults []error) {
	if err := process.CheckAddress(o.address); err != nil {
		faults = append(faults, fmt.Errorf("--gateway-bind-address: %w", err))
	}
	if o.timeout < minGatewayTimeout {
		faults = append(faults, fmt.Errorf("--gateway-worker-timeout is %s: must be at least %s", o.timeout, minGatewayTimeout))
	}
	if o.enabled() && (o.certDir == "") == (o.service == "") {
		faults = append(faults, fmt.Errorf("--gateway-bind-address is %q: give one of --gateway-cert-dir and --gateway-service", o.address))
	}
	if o.service != "" {
		if _, err := webhookserver.ServiceKey(o.service); err != nil {
			faults = append(faults, fmt.Errorf("--gateway-service: %w", err))
		}
	}
	if o.url == "" {
		return faults
	}
	u, err := url.Parse(o.url)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		faults = append(faults, fmt.Errorf("--gateway-url is %q: give a URL such as https://gateway.example.com", o.url))
	case o.service != "" && net.ParseIP(u.Hostname()) != nil:
		faults = append(faults, fmt.Errorf("--gateway-url is %q: the manager makes certificates for names, and none for IP addresses; give a name, or a certificate with --gateway-cert-dir", o.url))
	}
	return faults
}

func (o *gatewayOptions) key() types.NamespacedName {
	key, _ := webhookserver.ServiceKey(o.service) // validate has looked at it.
	return key
}

// published is the URL for users. Empty: it is not known.
func (o *gatewayOptions) published() string {
	if o.url == "" && o.service != "" {
		key := o.key()
		return "https://" + key.Name + "." + key.Namespace + ".svc"
	}
	return strings.TrimSuffix(o.url, "/")
}

// addGateway adds the gateway, if it is to be served.
func (w *wiring) addGateway(ctx context.Context) error {
	if !w.options.gateway.enabled() {
		return nil
	}
	config := w.options.UnwrappedConfig()
	handler, err := gateway.New(ctx, gateway.Options{
		Config: config, Hub: w.mgr.GetClient(), Caches: w.mgr.GetCache(), HubID: w.hubID, Archive: w.logs, AnswerTimeout: w.options.gateway.timeout, Clock: clock.RealClock{}, Logger: w.log.WithName("gateway"),
		Loader: w.loader(),
	})
	if err != nil {
		return fmt.Errorf("set up gateway: %w", err)
	}
	return w.mgr.Add(&gatewayRunner{
		options: &w.options.gateway, namespace: w.options.namespace, config: config, scheme: w.mgr.GetScheme(), handler: handler, log: w.log.WithName("gateway"),
		read: w.caches.DispatchesRead(),
	})
}

// gatewayRunner serves the gateway. As with webhooks, a certificate that cannot be made does not stop the dispatching, and
// replicas that do not lead write certificates too.
type gatewayRunner struct {
	options   *gatewayOptions
	namespace string
	config    *rest.Config
	scheme    *runtime.Scheme
	handler   http.Handler
	log       logr.Logger
	// read is closed when the caches have all Dispatches. Before that a list would lack pods of finished jobs.
	read <-chan struct{}
}

// NeedLeaderElection returns false, because all replicas serve the gateway.
func (r *gatewayRunner) NeedLeaderElection() bool { return false }

// Start serves until ctx ends. After an error it tries again.
func (r *gatewayRunner) Start(ctx context.Context) error {
	select {
	case <-r.read:
	case <-ctx.Done():
		return nil
	}
	serveAgain(ctx, r.run, func(err error) { r.log.Error(err, "The gateway is not served now") })
	return nil
}

func (r *gatewayRunner) run(ctx context.Context) error {
	mgr, err := newServing(r.config, ctrl.Options{
		Scheme: r.scheme,
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}}}},
	})
	if err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	dir := r.options.certDir
	var certs *webhookserver.Certificates
	if dir == "" {
		if certs, err = webhookserver.NewCertificates(r.options.key(), r.names()...); err != nil {
			return err
		}
		defer certs.Remove()
		if err := certs.AddTo(ctx, mgr); err != nil {
			return err
		}
		dir = certs.Dir()
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if certs != nil {
			select {
			case <-certs.Written():
			case <-ctx.Done():
				return nil
			}
		}
		watcher, err := certwatcher.New(filepath.Join(dir, webhookserver.CertFile), filepath.Join(dir, webhookserver.KeyFile))
		if err != nil {
			return fmt.Errorf("load certificate of the gateway: %w", err)
		}
		go r.publish(ctx, mgr.GetClient(), dir, watcher)
		return r.serve(ctx, watcher)
	}))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// names are the names in a certificate that the manager makes, beside that of the Service in full.
func (r *gatewayRunner) names() []string {
	key := r.options.key()
	names := []string{key.Name, key.Name + "." + key.Namespace, key.Name + "." + key.Namespace + ".svc.cluster.local"}
	if u, err := url.Parse(r.options.url); err == nil && u.Hostname() != "" {
		names = append(names, u.Hostname())
	}
	return names
}

// publish keeps the ConfigMap with the authority of a directory until ctx ends.
func (r *gatewayRunner) publish(ctx context.Context, hub client.Client, dir string, watcher *certwatcher.CertWatcher) {
	renewed := make(chan struct{}, 1)
	watcher.RegisterCallback(func(tls.Certificate) {
		select {
		case renewed <- struct{}{}:
		default: // The publication that is due reads the newest authority.
		}
	})
	(&publication{
		hub: hub, key: types.NamespacedName{Namespace: r.namespace, Name: gatewayConfigMap}, url: r.options.published(),
		authority: filepath.Join(dir, webhookserver.AuthorityKey), every: readAuthorityEvery, log: r.log,
	}).run(ctx, renewed)
}

func (r *gatewayRunner) serve(ctx context.Context, watcher *certwatcher.CertWatcher) error {
	go func() {
		if err := watcher.Start(ctx); err != nil {
			r.log.Error(err, "The gateway's certificate is not read again")
		}
	}()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.options.address)
	if err != nil {
		return fmt.Errorf("listen at --gateway-bind-address: %w", err)
	}
	server := &http.Server{
		Handler: r.handler, ReadHeaderTimeout: gatewayHeaderTimeout, IdleTimeout: gatewayIdle, MaxHeaderBytes: maxGatewayHeader,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: watcher.GetCertificate},
		ErrorLog:  gateway.ErrorLog(r.log),
	}
	stopped := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), gatewayGrace)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close() // Streams that go on end here.
		}
	})
	defer stopped()
	r.log.Info("Serving the gateway", "address", listener.Addr().String())
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the gateway: %w", err)
	}
	return nil
}
