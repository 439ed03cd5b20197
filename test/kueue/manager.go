// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/ports"
)

const (
	// Namespace is Kueue's own.
	Namespace = "kueue-system"
	service   = "kueue-webhook-service"
	secret    = "kueue-webhook-server-cert"

	poll = 50 * time.Millisecond
)

// ModuleDir is the directory of a module from which Kueue is built: its own module, or a module with the CRDs of an
// integration.
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

// Manager is Kueue's own manager beside a cluster.
type Manager struct {
	// Process is the latest process of the manager.
	Process *clusters.Process
	// Pprof is the address of its profiles.
	Pprof string
	// Config replaces parts of the configuration of Kueue's manifests. Install reads it.
	Config map[string]any

	cluster     *clusters.Cluster
	admin       client.Client
	config      string
	certDir     string
	health      string
	webhookPort int64
}

// New returns a manager that is not running. It has the integrations of config.
func New(cluster *clusters.Cluster, admin client.Client, config map[string]any) *Manager {
	return &Manager{Config: config, cluster: cluster, admin: admin, certDir: filepath.Join(cluster.Dir, "kueue-certs")}
}

// Install applies Kueue's manifests, and writes its configuration. It may be repeated while the manager does not run.
func (m *Manager) Install(ctx context.Context) (err error) {
	source, err := ModuleDir(ctx, "sigs.k8s.io/kueue")
	if err != nil {
		return err
	}
	for _, address := range []*string{&m.health, &m.Pprof} {
		if *address, err = ports.Free(); err != nil {
			return err
		}
	}
	address, err := ports.Free()
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
	rendered, err := m.cluster.Kubectl(ctx, "kustomize", filepath.Join(source, "config/default"))
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
	if err := m.cluster.ApplyObjects(ctx, wanted...); err != nil {
		return err
	}
	return m.configure(source)
}

// adapt makes a manifest fit a process instead of a pod, or says that it is not wanted.
func (m *Manager) adapt(o *unstructured.Unstructured) bool {
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
			port := []string{"spec", "conversion", "webhook", "clientConfig", "service", "port"}
			_ = unstructured.SetNestedField(o.Object, m.webhookPort, port...)
		}
		return true
	default:
		return false
	}
}

// configure writes the configuration: the module's own, with what is the process's, and Config.
func (m *Manager) configure(source string) error {
	text, err := os.ReadFile(filepath.Join(source, "config/components/manager/controller_manager_config.yaml"))
	if err != nil {
		return err
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return err
	}
	for key, value := range map[string]any{
		"namespace":        Namespace,
		"health":           map[string]any{"healthProbeBindAddress": m.health},
		"metrics":          map[string]any{"bindAddress": "0"},
		"pprofBindAddress": m.Pprof,
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
	maps.Copy(config, m.Config)
	if text, err = yaml.Marshal(config); err != nil {
		return err
	}
	m.config = filepath.Join(m.cluster.Dir, "kueue.yaml")
	return os.WriteFile(m.config, text, 0o644)
}

// Start starts the process, mounts its certificates when it has made them, and waits until it is ready.
func (m *Manager) Start(ctx context.Context) (err error) {
	m.Process, err = m.cluster.Run(ctx, "kueue", "kueue", "--config="+m.config, "--zap-log-level=2",
		"--kubeconfig="+m.cluster.KubeconfigPath)
	if err != nil {
		return err
	}
	return Await(ctx, "be ready, see "+m.Process.LogPath, func() error {
		select {
		case <-m.Process.Done():
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
func (m *Manager) mount(ctx context.Context) error {
	var certificates corev1.Secret
	if err := m.admin.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: secret}, &certificates); err != nil {
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

// RemoveWebhooks removes the webhooks, because they refuse everything while nobody answers. Install brings them back.
func (m *Manager) RemoveWebhooks(ctx context.Context) error {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	mutating.Name = "kueue-mutating-webhook-configuration"
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	validating.Name = "kueue-validating-webhook-configuration"
	return errors.Join(m.admin.Delete(ctx, mutating), m.admin.Delete(ctx, validating))
}

// Apply applies objects of Kueue. It tries again while the webhooks are not reachable.
func (m *Manager) Apply(ctx context.Context, objects ...*unstructured.Unstructured) error {
	return Await(ctx, "take objects on cluster "+m.cluster.Name, func() error {
		return m.cluster.ApplyObjects(ctx, objects...)
	})
}

// Active waits until all objects of a kind have the condition Active.
func (m *Manager) Active(ctx context.Context, kind string) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.FromAPIVersionAndKind(APIVersion, kind+"List"))
	return Await(ctx, "have every "+kind+" active on cluster "+m.cluster.Name, func() error {
		if err := m.admin.List(ctx, list); err != nil {
			return err
		}
		for i := range list.Items {
			if !IsTrue(&list.Items[i], "Active") {
				return fmt.Errorf("%s %q is not Active: %v", kind, list.Items[i].GetName(), list.Items[i].Object["status"])
			}
		}
		return nil
	})
}

// Await waits for Kueue until a probe returns nil.
func Await(ctx context.Context, what string, probe func() error) error {
	for {
		last := probe()
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for Kueue to %s: %w; last: %w", what, ctx.Err(), last)
		case <-time.After(poll):
		}
	}
}

// APIVersion is the API version of Kueue's objects.
const APIVersion = "kueue.x-k8s.io/v1beta2"

// LabelQueue on a job names its LocalQueue.
const LabelQueue = "kueue.x-k8s.io/queue-name"

// Object returns an object of Kueue without a spec.
func Object(kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(APIVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// IsTrue says whether a condition of an object is True.
func IsTrue(object *unstructured.Unstructured, condition string) bool {
	return trainjobs.HasCondition(object, condition)
}
