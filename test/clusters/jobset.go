// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trainyard/trainyard/test/ports"
)

const jobSetModule = "sigs.k8s.io/jobset"

var jobSetResource = schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}

// jobSetConfig configures JobSet's manager for one instance beside a cluster.
const jobSetConfig = `apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection:
  leaderElect: false
internalCertManagement:
  enable: false
webhook:
  host: %q
  port: %d
  certDir: %q
metrics:
  bindAddress: "0"
health:
  healthProbeBindAddress: "0"
clientConnection:
  qps: 1000
  burst: 2000
`

func jobSetCRDs(ctx context.Context) (string, error) {
	dir, err := ModuleDir(ctx, jobSetModule)
	return filepath.Join(dir, "config", "components", "crd", "bases"), err
}

// startJobSet runs JobSet's manager and then installs its webhooks. It returns
// when the API server calls them.
func (c *Cluster) startJobSet(ctx context.Context) error {
	if _, ok := c.backend.(*kindCluster); ok {
		return c.deployJobSet(ctx)
	}
	server, err := c.NewWebhookServer("jobset")
	if err != nil {
		return err
	}
	path := filepath.Join(c.Dir, "jobset.yaml")
	if err := writeFile(path, fmt.Appendf(nil, jobSetConfig, server.Host, server.Port, server.CertDir)); err != nil {
		return err
	}
	manager, err := c.Run(ctx, "jobset-manager", "jobset-manager", "--config="+path, "--zap-log-level=info", "--zap-devel=false")
	if err != nil {
		return err
	}
	err = c.waitFor(ctx, "JobSet's webhook server", func(ctx context.Context) error { return server.probe(ctx, manager) })
	if err != nil {
		return err
	}
	webhooks, err := jobSetWebhooks(ctx, server)
	if err != nil {
		return fmt.Errorf("read JobSet's webhook configurations: %w", err)
	}
	if err := c.ApplyObjects(ctx, webhooks...); err != nil {
		return err
	}
	return c.waitFor(ctx, "JobSet's webhooks to be called", c.probeJobSetDefaults)
}

// probe returns nil when the server answers with its certificate.
func (w *WebhookServer) probe(ctx context.Context, process *Process) error {
	if process.hasEnded() {
		return process.Ended()
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.CABundle)
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(w.Host, strconv.Itoa(w.Port)))
	if err != nil {
		return err
	}
	return conn.Close()
}

// jobSetWebhooks returns JobSet's webhook configurations for the server.
func jobSetWebhooks(ctx context.Context, server *WebhookServer) ([]*unstructured.Unstructured, error) {
	dir, err := ModuleDir(ctx, jobSetModule)
	if err != nil {
		return nil, err
	}
	objects, err := ReadObjects(filepath.Join(dir, "config", "components", "webhook", "manifests.yaml"))
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		object.SetName("jobset-" + object.GetName())
		if err := eachWebhook(object, selectJobSetPods); err != nil {
			return nil, err
		}
	}
	return objects, WebhookURLs(server, objects...)
}

// selectJobSetPods does what upstream's kustomize patches do to the webhooks
// for pods: they are called for the pods of JobSets only.
func selectJobSetPods(webhook map[string]any) error {
	rules, _, err := unstructured.NestedSlice(webhook, "rules")
	if err != nil || len(rules) == 0 {
		return err
	}
	rule, _ := rules[0].(map[string]any)
	resources, _, err := unstructured.NestedStringSlice(rule, "resources")
	if err != nil || len(resources) != 1 || resources[0] != "pods" {
		return err
	}
	return unstructured.SetNestedSlice(webhook, []any{
		map[string]any{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"},
	}, "objectSelector", "matchExpressions")
}

// probeJobSetDefaults returns nil when the webhook fills in a JobSet's success policy.
func (c *Cluster) probeJobSetDefaults(ctx context.Context) error {
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": jobSetResource.GroupVersion().String(),
		"kind":       "JobSet",
		"metadata":   map[string]any{"name": "probe"},
		"spec":       map[string]any{"replicatedJobs": []any{}},
	}}
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	created, err := c.dynamic.Resource(jobSetResource).Namespace(metav1.NamespaceDefault).Create(ctx, probe, options)
	if err != nil {
		return err
	}
	if _, found, _ := unstructured.NestedMap(created.Object, "spec", "successPolicy"); !found {
		return fmt.Errorf("a JobSet was created without defaults")
	}
	return nil
}

// WebhookServer says where a webhook server beside a cluster must listen, and how the API server reaches it.
type WebhookServer struct {
	// Host and Port are the address to listen on. The port is reserved while the cluster runs.
	Host string
	Port int
	// CertDir holds tls.crt and tls.key.
	CertDir string
	// CABundle is the PEM of the authority that issued them.
	CABundle []byte
}

// NewWebhookServer reserves a port and issues a certificate for a webhook server. Each server of a cluster has its own
// name.
func (c *Cluster) NewWebhookServer(name string) (*WebhookServer, error) {
	host, err := c.backend.hostAddress()
	if err != nil {
		return nil, err
	}
	ca, err := newAuthority(name)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority of webhook server %q: %w", name, err)
	}
	pair, err := ca.serving(host)
	if err != nil {
		return nil, fmt.Errorf("issue certificate of webhook server %q: %w", name, err)
	}
	w := &WebhookServer{Host: host, CertDir: filepath.Join(c.Dir, "webhooks", name), CABundle: ca.pem}
	if err := pair.write(w.CertDir, "tls"); err != nil {
		return nil, err
	}
	p, err := ports.Reserve(host)
	if err != nil {
		return nil, err
	}
	w.Port = p.Port
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ports = append(c.ports, p)
	return w, nil
}

// WebhookURLs replaces the references to a Service in Mutating- and ValidatingWebhookConfigurations by the server's URL
// with the same path. It does not change objects of other kinds.
func WebhookURLs(server *WebhookServer, objects ...*unstructured.Unstructured) error {
	for _, object := range objects {
		err := eachWebhook(object, func(webhook map[string]any) error {
			path, found, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
			if err != nil || !found {
				return err
			}
			webhook["clientConfig"] = map[string]any{
				"url":      fmt.Sprintf("https://%s:%d%s", server.Host, server.Port, path),
				"caBundle": base64.StdEncoding.EncodeToString(server.CABundle),
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s %q: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// WebhookServices makes each Service an alias of the server's host, and each Mutating- and
// ValidatingWebhookConfiguration refer to the server's port. The API server is not in a cluster network, so it can
// follow only an alias. Unlike with WebhookURLs, the certificate is for the Service.
func WebhookServices(server *WebhookServer, objects ...*unstructured.Unstructured) error {
	for _, object := range objects {
		if object.GetKind() == "Service" {
			object.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": server.Host}
			continue
		}
		err := eachWebhook(object, func(webhook map[string]any) error {
			return unstructured.SetNestedField(webhook, int64(server.Port), "clientConfig", "service", "port")
		})
		if err != nil {
			return fmt.Errorf("%s %q: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// eachWebhook calls change with each webhook of a webhook configuration, and
// not at all for other kinds.
func eachWebhook(object *unstructured.Unstructured, change func(map[string]any) error) error {
	switch object.GetKind() {
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
	default:
		return nil
	}
	webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
	if err != nil {
		return err
	}
	for _, w := range webhooks {
		webhook, ok := w.(map[string]any)
		if !ok {
			return fmt.Errorf("webhook is a %T", w)
		}
		if err := change(webhook); err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(object.Object, webhooks, "webhooks")
}
