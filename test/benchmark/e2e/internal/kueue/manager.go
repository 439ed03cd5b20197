// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/ports"
)

const (
	namespace = "kueue-system"
	service   = "kueue-webhook-service"
	secret    = "kueue-webhook-server-cert"
)

// findSource is the directory of Kueue's module.
func findSource(ctx context.Context) (string, error) { return ModuleDir(ctx, "sigs.k8s.io/kueue") }

// ModuleDir is the directory of a module that Kueue is built from: its own, or one with the CRDs of an integration.
func ModuleDir(ctx context.Context, module string) (string, error) {
	root, err := clusters.ModuleDir(ctx, "github.com/trainyard/trainyard")
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	command.Dir, command.Env = filepath.Join(root, "test/benchmark/kueue"), append(os.Environ(), "GOWORK=off")
	out, err := command.Output()
	if dir := strings.TrimSpace(string(out)); err == nil && dir != "" {
		return dir, nil
	}
	return "", fmt.Errorf("find the module %s (hack/build-kueue.sh downloads it): %w", module, err)
}

// manager is Kueue's process of one cluster.
type manager struct {
	cluster *fleet.Cluster
	source  string
	tuning  Tuning

	process       *clusters.Process
	config        string
	certDir       string
	health, pprof string
	webhookPort   int64
}

// install applies Kueue's manifests, and writes its configuration.
func (m *manager) install(ctx context.Context) (err error) {
	m.certDir = filepath.Join(m.cluster.Cluster.Dir, "kueue-certs")
	for _, address := range []*string{&m.health, &m.pprof} {
		if *address, err = ports.Free(ctx); err != nil {
			return err
		}
	}
	address, err := ports.Free(ctx)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if m.webhookPort, err = strconv.ParseInt(port, 10, 32); err != nil {
		return err
	}
	rendered, err := m.cluster.Cluster.Kubectl(ctx, "kustomize", filepath.Join(m.source, "config/default"))
	if err != nil {
		return err
	}
	objects, err := clusters.ParseObjects(rendered)
	if err != nil {
		return err
	}
	var wanted []*unstructured.Unstructured
	for _, o := range objects {
		if m.adapt(o) {
			wanted = append(wanted, o)
		}
	}
	if err := m.cluster.Cluster.ApplyObjects(ctx, wanted...); err != nil {
		return err
	}
	return m.configure()
}

// adapt makes a manifest fit a process instead of a pod, or says that it is not wanted.
func (m *manager) adapt(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "Namespace", "Secret":
		return true
	case "Service":
		// The API server then connects to this name, and still expects the Service's in the certificate.
		o.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
		return o.GetName() == service
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		webhooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
		for _, w := range webhooks {
			_ = unstructured.SetNestedField(w.(map[string]any), m.webhookPort, "clientConfig", "service", "port")
		}
		o.Object["webhooks"] = webhooks
		return true
	case "CustomResourceDefinition":
		if _, converts, _ := unstructured.NestedMap(o.Object, "spec", "conversion", "webhook"); converts {
			_ = unstructured.SetNestedField(o.Object, m.webhookPort, "spec", "conversion", "webhook", "clientConfig", "service", "port")
		}
		return true
	default:
		return false
	}
}

// configure writes the configuration: the module's own, with what is the process's, and the tuning.
func (m *manager) configure() error {
	text, err := os.ReadFile(filepath.Join(m.source, "config/components/manager/controller_manager_config.yaml"))
	if err != nil {
		return err
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return err
	}
	for key, value := range map[string]any{
		"namespace":        namespace,
		"health":           map[string]any{"healthProbeBindAddress": m.health},
		"metrics":          map[string]any{"bindAddress": "0"},
		"pprofBindAddress": m.pprof,
		"webhook":          map[string]any{"port": m.webhookPort, "host": "127.0.0.1", "certDir": m.certDir},
		"leaderElection":   map[string]any{"leaderElect": false},
		"internalCertManagement": map[string]any{
			"enable": true, "webhookServiceName": service, "webhookSecretName": secret,
		},
		// It writes certificates to a directory of the image.
		"featureGates": map[string]any{"VisibilityOnDemand": false},
	} {
		config[key] = value
	}
	for key, value := range m.tuning.overrides() {
		config[key] = value
	}
	if text, err = yaml.Marshal(config); err != nil {
		return err
	}
	m.config = filepath.Join(m.cluster.Cluster.Dir, "kueue.yaml")
	return os.WriteFile(m.config, text, 0o644)
}

// overrides are the parts of the configuration that a tuning replaces.
func (t Tuning) overrides() map[string]any {
	config := map[string]any{}
	if t.QPS > 0 {
		config["clientConnection"] = map[string]any{"qps": t.QPS, "burst": t.Burst}
	}
	if t.Concurrency > 0 {
		kinds := map[string]any{}
		for _, kind := range []string{
			"TrainJob.trainer.kubeflow.org", "Workload.kueue.x-k8s.io", "LocalQueue.kueue.x-k8s.io", "ClusterQueue.kueue.x-k8s.io",
			"AdmissionCheck.kueue.x-k8s.io", "MultiKueueCluster.kueue.x-k8s.io",
		} {
			kinds[kind] = t.Concurrency
		}
		config["controller"] = map[string]any{"groupKindConcurrency": kinds}
	}
	if t.Dispatcher != "" {
		config["multiKueue"] = map[string]any{"dispatcherName": t.Dispatcher}
	}
	config["integrations"] = map[string]any{"frameworks": t.Integrations}
	return config
}

// start starts the process, mounts its certificates when it has made them, and waits until it is ready.
func (m *manager) start(ctx context.Context) (err error) {
	m.process, err = m.cluster.Cluster.Run(ctx, "kueue", "kueue", "--config="+m.config, "--zap-log-level=2",
		"--kubeconfig="+m.cluster.Cluster.KubeconfigPath)
	if err != nil {
		return err
	}
	return await(ctx, "be ready, see "+m.process.LogPath, func() error {
		select {
		case <-m.process.Done():
			return errors.New("the process has ended")
		default:
		}
		if err := m.mount(ctx); err != nil {
			return err
		}
		return ports.Ready(ctx, m.health)
	})
}

// mount is what a kubelet does with the Secret.
func (m *manager) mount(ctx context.Context) error {
	var certificates corev1.Secret
	if err := m.cluster.Admin.Get(ctx, types.NamespacedName{Namespace: namespace, Name: secret}, &certificates); err != nil {
		return err
	}
	if len(certificates.Data["tls.crt"]) == 0 {
		return errors.New("there are no certificates yet")
	}
	if err := os.MkdirAll(m.certDir, 0o700); err != nil {
		return err
	}
	for name, data := range certificates.Data {
		path := filepath.Join(m.certDir, name)
		if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, data) {
			continue // The process watches the file, and would find half of it.
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// webhooks of the cluster, by their path.
func webhooks() []string {
	const group = "/apis/admissionregistration.k8s.io/v1/"
	return []string{
		group + "mutatingwebhookconfigurations/kueue-mutating-webhook-configuration",
		group + "validatingwebhookconfigurations/kueue-validating-webhook-configuration",
	}
}
