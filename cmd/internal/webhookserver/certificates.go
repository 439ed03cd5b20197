// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clockSkew is how far the clocks of clients may be behind.
const clockSkew = time.Hour

// Certificates are the certificates that processes make, with cert-controller's rotator. The first replica puts an
// authority and a certificate into the Secret. Each replica writes the authority into the webhook configurations. The
// rotator renews both 90 days before they end. This type copies the certificate and the authority from the Secret to
// files, from which the server reloads the certificate. A mounted Secret would work too, but a kubelet needs a minute or
// more to update it.
type Certificates struct {
	service types.NamespacedName
	// configuration is the name of the webhook configurations. Empty: there are none to write the authority into.
	configuration string
	// names are names of the server besides the Service's.
	names []string
	// dir is readable for this process only. Remove deletes it.
	dir string
	// written is closed when the files exist.
	written chan struct{}
	// injected is closed when the webhook configurations have the authority.
	injected chan struct{}

	once sync.Once // closes written
	log  logr.Logger
}

// NewCertificates returns the certificates of a server that is reached through a Service, and under further names. It is
// for servers other than those of webhooks, which Options.New makes.
func NewCertificates(service types.NamespacedName, names ...string) (*Certificates, error) {
	c, err := newCertificates(service, "")
	if err != nil {
		return nil, err
	}
	c.names = names
	return c, nil
}

// Dir is the directory with CertFile, KeyFile and AuthorityKey.
func (c *Certificates) Dir() string { return c.dir }

// Written returns a channel that is closed when the files exist.
func (c *Certificates) Written() <-chan struct{} { return c.written }

// AuthorityKey is the name of the authority in the Secret, and of its file.
const AuthorityKey = "ca.crt"

func newCertificates(service types.NamespacedName, configuration string) (*Certificates, error) {
	dir, err := os.MkdirTemp("", service.Name+"-") // mode 0700
	if err != nil {
		return nil, fmt.Errorf("make directory for certificates: %w", err)
	}
	return &Certificates{
		service: service, configuration: configuration, dir: dir, written: make(chan struct{}), injected: make(chan struct{}),
		log: ctrl.Log.WithName("webhook-certificates"),
	}, nil
}

// Secret is where the certificates are, and the authority under AuthorityKey.
func (c *Certificates) Secret() types.NamespacedName {
	return types.NamespacedName{Namespace: c.service.Namespace, Name: c.service.Name + "-cert"}
}

// AddTo adds to the manager what makes, renews and writes the certificates.
func (c *Certificates) AddTo(ctx context.Context, mgr ctrl.Manager) error {
	if err := c.watchSecret(ctx, mgr); err != nil {
		return err
	}
	r := &rotator.CertRotator{
		SecretKey:      c.Secret(),
		CertDir:        c.dir,
		CAName:         c.service.Name + "-ca",
		CAOrganization: "trainyard",
		DNSName:        c.service.Name + "." + c.service.Namespace + ".svc",
		ExtraDNSNames:  c.names,
		IsReady:        c.injected,
		FieldOwner:     c.configuration,
		// A process may use a name of a controller once, and after an error it makes the certificates again.
		ControllerName: filepath.Base(c.dir),
	}
	if c.configuration != "" {
		r.Webhooks = []rotator.WebhookInfo{
			{Type: rotator.Validating, Name: c.configuration},
			{Type: rotator.Mutating, Name: c.configuration},
		}
	}
	if err := rotator.AddRotator(mgr, r); err != nil {
		return fmt.Errorf("set up certificates of %s: %w", c.service, err)
	}
	return c.addNames(ctx, mgr, r)
}

// addNames replaces a certificate that lacks a name of this server, by the same authority. The rotator would look only at
// the first name. It looks once, at the start. In a rolling update replicas have different names: if they looked at each
// change of the Secret, they would replace each other's certificates.
func (c *Certificates) addNames(ctx context.Context, mgr ctrl.Manager, r *rotator.CertRotator) error {
	if len(c.names) == 0 {
		return nil
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		secret := &corev1.Secret{}
		if err := mgr.GetAPIReader().Get(ctx, c.Secret(), secret); err != nil {
			return err
		}
		pair, err := tls.X509KeyPair(secret.Data[CertFile], secret.Data[KeyFile])
		if err != nil || c.covers(pair.Leaf) {
			return nil //nolint:nilerr // The rotator replaces what cannot be used.
		}
		authority, err := tls.X509KeyPair(secret.Data[AuthorityKey], secret.Data["ca.key"])
		key, isRSA := authority.PrivateKey.(*rsa.PrivateKey)
		if err != nil || !isRSA {
			return nil //nolint:nilerr // The same.
		}
		now := time.Now()
		secret.Data[CertFile], secret.Data[KeyFile], err = r.CreateCertPEM(
			&rotator.KeyPairArtifacts{Cert: authority.Leaf, Key: key}, now.Add(-clockSkew), now.Add(r.ServerCertDuration))
		if err != nil {
			return err
		}
		return mgr.GetClient().Update(ctx, secret)
	})
	if err != nil {
		return fmt.Errorf("replace the certificate in Secret %s, which lacks a name: %w", c.Secret(), err)
	}
	return nil
}

// covers is true if the certificate has all names.
func (c *Certificates) covers(certificate *x509.Certificate) bool {
	return !slices.ContainsFunc(c.names, func(name string) bool { return certificate.VerifyHostname(name) != nil })
}

// watchSecret uses its own cache, because the manager's cache has no contents of Secrets.
func (c *Certificates) watchSecret(ctx context.Context, mgr ctrl.Manager) error {
	only := fields.OneTermEqualSelector("metadata.name", c.Secret().Name)
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{c.Secret().Namespace: {FieldSelector: only}}},
		},
	})
	if err != nil {
		return fmt.Errorf("set up cache of Secret %s: %w", c.Secret(), err)
	}
	informer, err := secrets.GetInformer(ctx, &corev1.Secret{})
	if err != nil {
		return fmt.Errorf("watch Secret %s: %w", c.Secret(), err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { c.take(object) },
		UpdateFunc: func(_, object any) { c.take(object) },
	})
	if err != nil {
		return fmt.Errorf("watch Secret %s: %w", c.Secret(), err)
	}
	return mgr.Add(secretCache{secrets})
}

// take writes certificate and key from the Secret to files, if valid and new. The authority's key stays in the Secret.
func (c *Certificates) take(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok || len(secret.Data[CertFile]) == 0 {
		return // The rotator has not filled the Secret yet.
	}
	if _, err := tls.X509KeyPair(secret.Data[CertFile], secret.Data[KeyFile]); err != nil {
		c.log.Error(err, "Secret has no usable certificate", "secret", c.Secret().String())
		return
	}
	// The certificate is written last. Until then, the server keeps the old pair and tries again. Who hears of the
	// certificate finds its authority.
	for _, name := range []string{AuthorityKey, KeyFile, CertFile} {
		if err := c.write(name, secret.Data[name]); err != nil {
			c.log.Error(err, "Write certificate of webhooks")
			return
		}
	}
	c.once.Do(func() { close(c.written) })
}

// write replaces the file at once, if its contents differ.
func (c *Certificates) write(name string, data []byte) error {
	path := filepath.Join(c.dir, name)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// CheckInjected is a readiness check. Before the injection, the API server does not trust the webhooks.
func (c *Certificates) CheckInjected(*http.Request) error {
	select {
	case <-c.injected:
		return nil
	default:
		return errors.New("the webhook configurations do not have the authority of the certificates yet")
	}
}

// Remove deletes the files.
func (c *Certificates) Remove() {
	if err := os.RemoveAll(c.dir); err != nil {
		c.log.Error(err, "Remove certificates of webhooks")
	}
}

// secretCache is a cache that the manager starts in every replica.
type secretCache struct{ cache.Cache }

// NeedLeaderElection returns false, because all replicas serve webhooks.
func (secretCache) NeedLeaderElection() bool { return false }
