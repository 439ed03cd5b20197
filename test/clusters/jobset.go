// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
