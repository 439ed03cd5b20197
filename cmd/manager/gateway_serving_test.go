// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/onsi/gomega"
	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/ports"
)

const (
	gatewayService = defaultNamespace + "/trainyard-gateway"
	gatewaySecret  = "trainyard-gateway-cert"
	gatewayHost    = "gateway.example.com"
)

// installGateway applies config/gateway until the test ends.
func (w *world) installGateway(t *testing.T) {
	t.Helper()
	objects, err := clusters.ReadObjects("../../config/gateway")
	check.Must(t, err)
	check.Must(t, w.hub.ApplyObjects(t.Context(), objects...))
	t.Cleanup(func() {
		for _, object := range objects {
			check.Must(t, client.IgnoreNotFound(w.admin.Delete(context.Background(), object)))
		}
	})
}

// startGateway starts a manager that serves the gateway, and returns where.
func (w *world) startGateway(t *testing.T, flags ...string) (address string) {
	t.Helper()
	address, err := ports.Free()
	check.Must(t, err)
	w.start(t, append([]string{"--gateway-bind-address=" + address}, flags...)...)
	return address
}

// replica serves the gateway in this process. Nobody asks it for more than its certificate.
type replica struct {
	address string

	mu    sync.Mutex
	log   strings.Builder
	asked []string // The requests for the ConfigMap, by their methods.
}

// runGateway serves the gateway with the manager's account until the test ends.
func (w *world) runGateway(t *testing.T, change func(*gatewayOptions)) *replica {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", w.kubeconfig)
	check.Must(t, err)
	r := &replica{}
	config.Wrap(r.count)
	o := defaultOptions().gateway
	o.url = "https://" + gatewayHost
	change(&o)
	r.address, err = ports.Free()
	check.Must(t, err)
	o.address = r.address
	check.Diff(t, []error(nil), o.validate(), "faults of the options")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	read := make(chan struct{})
	close(read)
	runner := &gatewayRunner{
		read:    read,
		options: &o, namespace: defaultNamespace, config: config, scheme: w.admin.Scheme(), handler: http.NotFoundHandler(),
		log: funcr.New(r.write, funcr.Options{}),
	}
	go func() { ended <- runner.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		check.Must(t, <-ended)
		if t.Failed() {
			t.Logf("log of the gateway at %s:\n%s", r.address, r.text())
		}
	})
	return r
}

func (r *replica) write(_, args string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.WriteString(args + "\n")
}

func (r *replica) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

func (r *replica) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if strings.HasSuffix(request.URL.Path, "/configmaps/"+gatewayConfigMap) {
			r.mu.Lock()
			r.asked = append(r.asked, request.Method)
			r.mu.Unlock()
		}
		return next.RoundTrip(request)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// requests are the requests for the ConfigMap.
func (r *replica) requests() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.asked, " ")
}

// await waits until the replica serves a certificate for a name from an authority.
func (r *replica) await(t *testing.T, name string, authority []byte) {
	t.Helper()
	eventually(t, "a certificate for "+name, func(g gomega.Gomega) {
		_, err := served(t.Context(), r.address, name, authority)
		g.Expect(err).NotTo(gomega.HaveOccurred())
	})
}

// ofService lets the manager make the certificate.
func ofService(o *gatewayOptions) { o.service = gatewayService }

// awaitPublished waits until the ConfigMap has this authority, or any if it is nil, and returns the ConfigMap.
func (w *world) awaitPublished(t *testing.T, authority []byte) *corev1.ConfigMap {
	t.Helper()
	var published corev1.ConfigMap
	eventually(t, "the gateway to be published", func(g gomega.Gomega) {
		g.Expect(w.admin.Get(t.Context(), client.ObjectKey{Namespace: defaultNamespace, Name: gatewayConfigMap}, &published)).To(gomega.Succeed())
		g.Expect(published.Data["ca.crt"]).NotTo(gomega.BeEmpty())
		if authority != nil {
			g.Expect(published.Data["ca.crt"]).To(gomega.Equal(string(authority)))
		}
	})
	return &published
}

// secret is the Secret with the certificate.
func (w *world) secret(ctx context.Context, g gomega.Gomega) *corev1.Secret {
	var secret corev1.Secret
	g.Expect(w.admin.Get(ctx, client.ObjectKey{Namespace: defaultNamespace, Name: gatewaySecret}, &secret)).To(gomega.Succeed())
	return &secret
}

// served returns the certificate of the server at an address, as somebody gets it who trusts an authority and asks for a
// name.
func served(ctx context.Context, address, name string, authority []byte) (*x509.Certificate, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	connection, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: name}}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// through returns a configuration of somebody with a token who knows no more than what is published. DNS is replaced: the
// host of the URL is at the address.
func through(t *testing.T, published *corev1.ConfigMap, address, token string) *rest.Config {
	t.Helper()
	u, err := url.Parse(published.Data["url"])
	check.Must(t, err)
	return &rest.Config{
		Host: u.String(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: []byte(published.Data["ca.crt"])},
		Dial: func(ctx context.Context, network, wanted string) (net.Conn, error) {
			if wanted != u.Hostname()+":443" {
				return nil, &net.DNSError{Err: "no such host", Name: wanted}
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
}

// TestGatewayAsPublished: two managers make one certificate, for the host of the URL and for the Service. Whoever can log
// in to the hub, and no one else, may read where the gateway is, and reaches both managers with that. The rights of config
// are enough.
func TestGatewayAsPublished(t *testing.T) {
	w := hub(t)
	w.installGateway(t)
	flags := []string{"--gateway-service=" + gatewayService, "--gateway-url=https://" + gatewayHost + "/"}
	addresses := []string{w.startGateway(t, flags...), w.startGateway(t, flags...)}

	user := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "anybody"}}
	check.Must(t, w.admin.Create(t.Context(), user))
	t.Cleanup(func() { check.Must(t, w.admin.Delete(context.Background(), user)) })
	kubeconfig, err := w.hub.ServiceAccountKubeconfig(t.Context(), client.ObjectKeyFromObject(user), time.Hour)
	check.Must(t, err)
	direct, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	check.Must(t, err)
	hub, err := client.New(direct, client.Options{Scheme: w.admin.Scheme()})
	check.Must(t, err)

	w.awaitPublished(t, nil)
	key := client.ObjectKey{Namespace: defaultNamespace, Name: gatewayConfigMap}
	var published corev1.ConfigMap
	check.Must(t, hub.Get(t.Context(), key, &published))
	check.Equal(t, "https://"+gatewayHost, published.Data["url"], "published URL")
	if err := hub.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(defaultNamespace)); !apierrors.IsForbidden(err) {
		t.Errorf("everybody may read all ConfigMaps: %v", err)
	}
	nobody, err := client.New(rest.AnonymousClientConfig(direct), client.Options{Scheme: w.admin.Scheme(), Mapper: w.admin.RESTMapper()})
	check.Must(t, err)
	if err := nobody.Get(t.Context(), key, &corev1.ConfigMap{}); !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("who has not logged in may read the ConfigMap: %v", err)
	}

	for _, address := range addresses {
		gateway, err := client.New(through(t, &published, address, direct.BearerToken), client.Options{Scheme: w.admin.Scheme()})
		check.Must(t, err)
		review := &authenticationv1.SelfSubjectReview{}
		check.Must(t, gateway.Create(t.Context(), review))
		check.Equal(t, "system:serviceaccount:default:anybody", review.Status.UserInfo.Username, "user of the gateway at %s", address)
		for _, name := range []string{gatewayHost, "trainyard-gateway.trainyard-system.svc", "trainyard-gateway.trainyard-system"} {
			leaf, err := served(t.Context(), address, name, []byte(published.Data["ca.crt"]))
			check.Must(t, err)
			inSecret := w.secret(t.Context(), gomega.NewWithT(t)).Data["tls.crt"]
			check.Equal(t, string(inSecret), encode(leaf), "the certificate at %s is not that of the Secret", address)
		}
	}
}

func encode(certificate *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
}

// TestGatewayURLThatChanges: a manager with another URL than the last one makes a certificate for it, by the authority
// that users trust already. A manager that still has the old URL leaves that certificate.
func TestGatewayURLThatChanges(t *testing.T) {
	w := hub(t)
	w.installGateway(t)
	old := w.runGateway(t, ofService)
	authority := []byte(w.awaitPublished(t, nil).Data["ca.crt"])
	old.await(t, gatewayHost, authority)

	next := w.runGateway(t, func(o *gatewayOptions) { o.service, o.url = gatewayService, "https://next.example.com" })
	for _, replica := range []*replica{next, old} {
		replica.await(t, "next.example.com", authority)
		replica.await(t, "trainyard-gateway.trainyard-system.svc", authority)
	}
	check.Equal(t, "https://next.example.com", w.awaitPublished(t, authority).Data["url"], "published URL")
	before := w.secret(t.Context(), gomega.NewWithT(t)).ResourceVersion
	again := w.runGateway(t, func(o *gatewayOptions) { o.service, o.url = gatewayService, "https://next.example.com" })
	again.await(t, "next.example.com", authority)
	check.Equal(t, before, w.secret(t.Context(), gomega.NewWithT(t)).ResourceVersion, "version of the Secret, which nobody has to write")
}

// TestGatewayAuthorityThatChanges: when the managers' authority comes to its end, all replicas serve a certificate of
// the next one, and the ConfigMap follows. Nobody writes it without need.
func TestGatewayAuthorityThatChanges(t *testing.T) {
	w := hub(t)
	w.installGateway(t)
	replicas := []*replica{w.runGateway(t, ofService), w.runGateway(t, ofService)}
	first := []byte(w.awaitPublished(t, nil).Data["ca.crt"])
	for _, r := range replicas {
		r.await(t, gatewayHost, first)
	}

	ending := newAuthority(t)
	secret := w.secret(t.Context(), gomega.NewWithT(t))
	secret.Data = ending.secret(t, time.Now().Add(time.Hour))
	check.Must(t, w.admin.Update(t.Context(), secret))
	var next []byte
	eventually(t, "the next authority", func(g gomega.Gomega) {
		next = w.secret(t.Context(), g).Data["ca.crt"]
		g.Expect(next).NotTo(gomega.Or(gomega.Equal(first), gomega.Equal(ending.ca.CertPEM)))
	})
	w.awaitPublished(t, next)
	for _, r := range replicas {
		r.await(t, gatewayHost, next)
	}

	before := replicas[0].requests() + replicas[1].requests()
	secret = w.secret(t.Context(), gomega.NewWithT(t))
	secret.Annotations = map[string]string{"example.com/seen": "yes"}
	check.Must(t, w.admin.Update(t.Context(), secret))
	time.Sleep(time.Second) // Nothing is to happen.
	check.Equal(t, before, replicas[0].requests()+replicas[1].requests(), "requests for the ConfigMap after a change that is none")
}

// authority issues certificates.
type authority struct {
	rotator rotator.CertRotator
	ca      *rotator.KeyPairArtifacts
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{rotator: rotator.CertRotator{
		CAName: "trainyard-gateway-ca", DNSName: gatewayHost, ExtKeyUsages: &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}}
	var err error
	a.ca, err = a.rotator.CreateCACert(time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	check.Must(t, err)
	return a
}

// secret is the data of a Secret with the authority and a certificate that ends at some time.
func (a *authority) secret(t *testing.T, end time.Time) map[string][]byte {
	t.Helper()
	cert, key, err := a.rotator.CreateCertPEM(a.ca, time.Now().Add(-time.Hour), end)
	check.Must(t, err)
	return map[string][]byte{"ca.crt": a.ca.CertPEM, "ca.key": a.ca.KeyPEM, "tls.crt": cert, "tls.key": key}
}

// mount puts the data of a Secret into a directory as a kubelet does: all files change at once.
func mount(t *testing.T, dir string, data map[string][]byte) {
	t.Helper()
	version, err := os.MkdirTemp(dir, "..version-")
	check.Must(t, err)
	for name, content := range data {
		check.Must(t, os.WriteFile(filepath.Join(version, name), content, 0o600))
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	before, _ := os.Readlink(filepath.Join(dir, "..data")) // None at first.
	check.Must(t, os.Symlink(filepath.Base(version), filepath.Join(dir, "..next")))
	check.Must(t, os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")))
	if before != "" {
		check.Must(t, os.RemoveAll(filepath.Join(dir, before)))
	}
}

// TestGatewayCertificateThatIsGiven: the authority in the Secret of cert-manager is published, and when cert-manager
// renews the certificate with another authority, it is served and published without a restart, with one write.
func TestGatewayCertificateThatIsGiven(t *testing.T) {
	w := hub(t)
	w.installGateway(t)
	dir := t.TempDir()
	first, next := newAuthority(t), newAuthority(t)
	mount(t, dir, first.secret(t, time.Now().Add(time.Hour)))
	r := w.runGateway(t, func(o *gatewayOptions) { o.certDir = dir })
	w.awaitPublished(t, first.ca.CertPEM)
	r.await(t, gatewayHost, first.ca.CertPEM)
	check.Equal(t, "GET PATCH", r.requests(), "requests for the ConfigMap")

	mount(t, dir, first.secret(t, time.Now().Add(50*time.Minute))) // The same authority.
	eventually(t, "the certificate that ends earlier", func(g gomega.Gomega) {
		leaf, err := served(t.Context(), r.address, gatewayHost, first.ca.CertPEM)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(leaf.NotAfter).To(gomega.BeTemporally("<", time.Now().Add(55*time.Minute)))
	})
	mount(t, dir, next.secret(t, time.Now().Add(time.Hour)))
	w.awaitPublished(t, next.ca.CertPEM)
	r.await(t, gatewayHost, next.ca.CertPEM)
	check.Equal(t, "GET PATCH GET PATCH", r.requests(), "requests for the ConfigMap")
	check.Equal(t, 0, len(w.secret(t.Context(), gomega.NewWithT(t)).Data), "entries of the Secret of a manager that makes certificates")

	again := w.runGateway(t, func(o *gatewayOptions) { o.certDir = dir })
	again.await(t, gatewayHost, next.ca.CertPEM)
	eventually(t, "another replica to look", func(g gomega.Gomega) { g.Expect(again.requests()).To(gomega.Equal("GET")) })
}

// TestPublishesAnAuthorityAlone: the file of the authority may change without the certificate, and it may be away.
func TestPublishesAnAuthorityAlone(t *testing.T) {
	w := hub(t)
	w.installGateway(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	p := &publication{
		hub: w.admin, key: client.ObjectKey{Namespace: defaultNamespace, Name: gatewayConfigMap}, url: "https://" + gatewayHost,
		authority: file, every: 10 * time.Millisecond, log: logr.Discard(),
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.run(ctx, nil)
	}()
	defer func() {
		stop()
		<-ended
	}()
	for _, want := range []map[string]string{
		{"url": "https://" + gatewayHost},
		{"url": "https://" + gatewayHost, "ca.crt": "old"},
		{"url": "https://" + gatewayHost, "ca.crt": "old and next"},
		{"url": "https://" + gatewayHost},
	} {
		if authority, ok := want["ca.crt"]; ok {
			check.Must(t, os.WriteFile(file+".new", []byte(authority), 0o600))
			check.Must(t, os.Rename(file+".new", file))
		} else {
			check.Must(t, os.RemoveAll(file))
		}
		eventually(t, "the authority to be published", func(g gomega.Gomega) {
			var object corev1.ConfigMap
			g.Expect(w.admin.Get(t.Context(), p.key, &object)).To(gomega.Succeed())
			g.Expect(object.Data).To(gomega.Equal(want))
		})
	}
}

// TestGatewayNeedsItsRights: without a right of config/gateway/role.yaml, the gateway is not served or not published, and
// the log says why. When the right is there, it goes on by itself.
func TestGatewayNeedsItsRights(t *testing.T) {
	w := hub(t)
	for name, tc := range map[string]struct {
		resource, verb string
		served         bool
		log            string
	}{
		"Certificate": {resource: "secrets", verb: "update", log: "The gateway is not served now"},
		"Read":        {resource: "configmaps", verb: "get", served: true, log: "get ConfigMap trainyard-system/trainyard-gateway: "},
		"Publish":     {resource: "configmaps", verb: "patch", served: true, log: "write ConfigMap trainyard-system/trainyard-gateway: "},
	} {
		t.Run(name, func(t *testing.T) {
			w.installGateway(t)
			role := &rbacv1.Role{}
			check.Must(t, w.admin.Get(t.Context(), client.ObjectKey{Namespace: defaultNamespace, Name: "trainyard-manager-gateway"}, role))
			whole := slices.Clone(role.Rules)
			for i := range role.Rules {
				rule := role.Rules[i].DeepCopy()
				if rule.Resources[0] == tc.resource {
					rule.Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return verb == tc.verb })
				}
				role.Rules[i] = *rule
			}
			role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return len(rule.Verbs) == 0 })
			check.Must(t, w.admin.Update(t.Context(), role))
			if tc.verb == "get" { // Everybody has this right.
				readers := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: "trainyard-gateway-reader"}}
				check.Must(t, w.admin.Delete(t.Context(), readers))
			}
			w.awaitLoss(t, tc.resource, tc.verb)

			r := w.runGateway(t, ofService)
			eventually(t, "the log to say what is missing", func(g gomega.Gomega) { g.Expect(r.text()).To(gomega.ContainSubstring(tc.log)) })
			_, err := served(t.Context(), r.address, gatewayHost, w.secret(t.Context(), gomega.NewWithT(t)).Data["ca.crt"])
			check.Equal(t, tc.served, err == nil, "the gateway is served, error %v", err)
			var object corev1.ConfigMap
			check.Must(t, w.admin.Get(t.Context(), client.ObjectKey{Namespace: defaultNamespace, Name: gatewayConfigMap}, &object))
			check.Equal(t, 0, len(object.Data), "entries of the ConfigMap")

			check.Must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(role), role))
			role.Rules = whole
			check.Must(t, w.admin.Update(t.Context(), role))
			authority := []byte(w.awaitPublished(t, nil).Data["ca.crt"])
			r.await(t, gatewayHost, authority)
		})
	}
}

// awaitLoss waits until the API server knows that the manager lacks a right for the gateway's objects.
func (w *world) awaitLoss(t *testing.T, resource, verb string) {
	t.Helper()
	name := map[string]string{"secrets": gatewaySecret, "configmaps": gatewayConfigMap}[resource]
	eventually(t, "the rights", func(g gomega.Gomega) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + defaultNamespace + ":trainyard-manager",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: defaultNamespace, Verb: verb, Resource: resource, Name: name},
		}}
		g.Expect(w.admin.Create(t.Context(), review)).To(gomega.Succeed())
		g.Expect(review.Status.Allowed).To(gomega.BeFalse())
	})
}
