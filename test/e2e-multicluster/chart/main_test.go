// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart, the roles for people that it installs, and what the manager does while CRDs are
// missing, on one real API server. Only two controllers run: the garbage collector and the controller of aggregated
// roles.
package chart

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/ports"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	hubNamespace   = "trainyard-system"
	agentNamespace = "kubeflow-system"

	// timeout is for what takes a second or two on an idle machine.
	timeout = 6 * time.Minute
	poll    = 50 * time.Millisecond
)

var (
	cluster *clusters.Cluster
	// root is the repository, and home has what helm writes for its user.
	root, home string
)

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	if root, err = clusters.ModuleDir(ctx, "github.com/trainyard/trainyard"); err != nil {
		return nil, err
	}
	if err := clusters.Inputs(filepath.Join(root, "charts"), filepath.Join(root, "config"), filepath.Join(root, "hack/helm.sh")); err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, filepath.Join(root, "hack/helm.sh"), "version")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build helm: %w: %s", err, out)
	}
	cluster, err = clusters.Start(ctx, clusters.Options{
		Name: "chart", GarbageCollector: true, OpenAPI: true,
		ControllerManagerArgs: []string{"--controllers=clusterrole-aggregation-controller"},
	})
	if err != nil {
		return nil, err
	}
	home = filepath.Join(cluster.Dir, "helm")
	return cluster.Stop, nil
}

// helm runs helm as the cluster's admin, and returns its standard output. The error has its standard error.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(root, "bin/helm"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.KubeconfigPath,
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %v: %w: %s", args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// render runs helm template with values.
func render(t *testing.T, values string) (string, error) {
	t.Helper()
	chart := filepath.Join(root, "charts/trainyard")
	return helm(t, "template", "trainyard", chart, "--namespace", hubNamespace, "--set", values)
}

// release runs a command of helm about a release of the chart in the namespace of Trainyard.
func release(t *testing.T, command, name string, flags ...string) string {
	t.Helper()
	args := []string{command, name}
	if command != "uninstall" {
		args = append(args, filepath.Join(root, "charts/trainyard"))
	}
	out, err := helm(t, append(append(args, "--namespace", hubNamespace), flags...)...)
	check.Must(t, err)
	return out
}

// kubectl runs kubectl as the cluster's admin, also when the test is over.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(context.WithoutCancel(t.Context()), args...)
	check.Must(t, err)
	return string(out)
}

// crds are the CRDs of the chart.
var crds = []string{
	"CustomResourceDefinition capacityreports.trainyard.dev", "CustomResourceDefinition dispatches.trainyard.dev",
	"CustomResourceDefinition dispatchpolicies.trainyard.dev", "CustomResourceDefinition executionleases.trainyard.dev",
	"CustomResourceDefinition tombstones.trainyard.dev", "CustomResourceDefinition workerclusters.trainyard.dev",
}

// TestServerAcceptsAll checks each mode of the chart with all its options against the API server's own validation.
func TestServerAcceptsAll(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "manifest.yaml")
	for _, name := range []string{"HubWithOptions", "WorkerWithOptions", "AgentWithOptions"} {
		// A dry run takes namespaces that exist.
		out, err := helm(t, "template", "trainyard", filepath.Join(root, "charts/trainyard"), "--namespace", "default",
			"--set", modes[name].values+",imagePullSecrets={registry}",
			"--set", "hub.clusterProfiles.namespace=default,monitoring.enabled=false", // Without the Prometheus Operator's CRDs.
			"--set", "workerAgent.namespace=kube-system,workerAgent.createNamespace=false",
			"--set-json", `hub.tolerations=[{"operator":"Exists"}]`,
			"--set-json", `workerAgent.affinity={"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":`+
				`{"nodeSelectorTerms":[{"matchExpressions":[{"key":"pool","operator":"In","values":["system"]}]}]}}}`,
			"--set", "workerAgent.podLabels.team=ml,hub.podAnnotations.note=yes,hub.nodeSelector.pool=system",
			"--set-json", `hub.volumes=[{"name":"east","secret":{"secretName":"east"}}]`,
			"--set-json", `hub.volumeMounts=[{"name":"east","mountPath":"/east"}]`)
		check.Must(t, err)
		check.Must(t, os.WriteFile(manifest, []byte(out), 0o600))
		kubectl(t, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", manifest)
	}
}

// TestInstallUpgradeUninstall installs hub, worker and agent, changes values, and removes all again. What is left is
// what docs/upgrade.md says.
func TestInstallUpgradeUninstall(t *testing.T) {
	before := inventory(t)
	// A hub whose CRDs somebody else is to apply.
	notes := release(t, "install", "hub", "--create-namespace", "--set", "crds.install=false")
	expectNotes(t, notes, "manifests/base/crds?ref="+version(t, "github.com/kubeflow/trainer/v2")+`"`)
	manager := startManager(t)
	const trainerCRDs = "trainjobs.trainer.kubeflow.org/v1alpha1 (install Kubeflow Trainer's CRDs: kubectl apply"
	const hubCRDs = "dispatches.trainyard.dev/v1alpha1, dispatchpolicies.trainyard.dev/v1alpha1, " +
		"tombstones.trainyard.dev/v1alpha1, workerclusters.trainyard.dev/v1alpha1 (install Trainyard's CRDs: kubectl apply"
	manager.waits(t, gomega.And(gomega.ContainSubstring(trainerCRDs), gomega.ContainSubstring(hubCRDs)))

	release(t, "upgrade", "hub", "--set", "hub.replicas=3,hub.priorityClassName=,networkPolicy.enabled=true")
	manager.waits(t, gomega.And(gomega.ContainSubstring(trainerCRDs), gomega.Not(gomega.ContainSubstring("trainyard.dev"))))
	const deployed = "{.spec.replicas} {.spec.template.spec.priorityClassName}"
	got := kubectl(t, "get", "deployment", "trainyard-manager", "--namespace", hubNamespace, "-o", "jsonpath="+deployed)
	check.Equal(t, "3 ", got, "replicas and priority class after the upgrade")
	if got := kubectl(t, "get", "resourcequota,networkpolicy", "--namespace", hubNamespace, "-o", "name"); got !=
		"networkpolicy.networking.k8s.io/trainyard-manager\n" {
		t.Errorf("quota and network policy after the upgrade: got %q", got)
	}
	paths, err := clusters.ModulePaths(t.Context(), clusters.TrainerCRDs)
	check.Must(t, err)
	check.Must(t, cluster.InstallCRDs(t.Context(), paths...))
	manager.works(t)
	check.Must(t, manager.Stop())
	t.Run("Roles", testRoles)

	notes = release(t, "install", "worker", "--set", "hub.enabled=false,worker.enabled=true,workerAgent.enabled=true,"+
		"worker.kueue.quota=true,worker.kueue.dispatcher=true,workerAgent.kueue.quota=true,networkPolicy.enabled=true")
	expectNotes(t, notes, "/jobset/releases/download/"+version(t, "sigs.k8s.io/jobset")+"/manifests.yaml")
	for _, name := range []string{"worker", "hub"} {
		release(t, "uninstall", name)
	}
	// The CRDs that were kept belong to a release of the same name.
	release(t, "install", "hub")
	release(t, "uninstall", "hub")
	// From kustomize to Helm.
	kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(root, "config/hub"))
	release(t, "install", "hub", "--take-ownership", "--force-conflicts", "--set", "hub.replicas=3")
	release(t, "uninstall", "hub")

	kubectl(t, "delete", "crd", "clustertrainingruntimes.trainer.kubeflow.org", "trainingruntimes.trainer.kubeflow.org",
		"trainjobs.trainer.kubeflow.org")
	namespaces := []string{"Namespace " + agentNamespace, "Namespace " + hubNamespace}
	expectLeft(t, before, slices.Concat(crds, namespaces, []string{"Lease " + hubNamespace + "/manager.trainyard.dev"}))
	// What docs/upgrade.md says.
	kubectl(t, "delete", "crd", "--selector", "app.kubernetes.io/part-of=trainyard")
	kubectl(t, "delete", "lease", "manager.trainyard.dev", "--namespace", hubNamespace)
	expectLeft(t, before, namespaces)
}

func expectNotes(t *testing.T, notes, part string) {
	t.Helper()
	if !strings.Contains(notes, part) {
		t.Errorf("the notes lack %s:\n%s", part, notes)
	}
}

// version returns the version of a module in go.mod.
func version(t *testing.T, module string) string {
	t.Helper()
	dir, err := clusters.ModuleDir(t.Context(), module)
	check.Must(t, err)
	_, version, _ := strings.Cut(filepath.Base(dir), "@")
	return version
}

// process is a manager with the rights that the chart gives it.
type process struct {
	*clusters.Process
	health string
}

func startManager(t *testing.T) process {
	t.Helper()
	account := types.NamespacedName{Namespace: hubNamespace, Name: "trainyard-manager"}
	kubeconfig, err := cluster.ServiceAccountKubeconfig(t.Context(), account, time.Hour)
	check.Must(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	check.Must(t, os.WriteFile(path, kubeconfig, 0o600))
	health, err := ports.Free()
	check.Must(t, err)
	p := process{health: health}
	p.Process, err = cluster.Run(t.Context(), "manager", "manager", "--kubeconfig="+path, "--namespace="+hubNamespace,
		"--health-probe-bind-address="+health, "--metrics-bind-address=0")
	check.Must(t, err)
	t.Cleanup(func() {
		if log, err := os.ReadFile(p.LogPath); err == nil && t.Failed() {
			t.Logf("log of the manager:\n%s", log)
		}
	})
	return p
}

// ask returns the status and the text of an answer to a probe.
func (p process) ask(g gomega.Gomega, path string) (int, string) {
	response, err := http.Get("http://" + p.health + path)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	return response.StatusCode, strings.TrimSpace(string(body))
}

// waits waits until the process is alive and not ready for a reason, which its log has too.
func (p process) waits(t *testing.T, reason gomegatypes.GomegaMatcher) {
	t.Helper()
	eventually(t, "the manager to wait", func(g gomega.Gomega) {
		status, text := p.ask(g, "/readyz")
		g.Expect(status).To(gomega.Equal(http.StatusServiceUnavailable))
		g.Expect(text).To(reason)
		log, err := os.ReadFile(p.LogPath)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(string(log)).To(gomega.ContainSubstring(text))
		status, _ = p.ask(g, "/healthz")
		g.Expect(status).To(gomega.Equal(http.StatusOK))
	})
}

// works waits until the process is ready and holds its lease. It must have all rights.
func (p process) works(t *testing.T) {
	t.Helper()
	eventually(t, "the manager to work", func(g gomega.Gomega) {
		status, text := p.ask(g, "/readyz")
		g.Expect(status).To(gomega.Equal(http.StatusOK), text)
		holder, err := cluster.Kubectl(t.Context(), "get", "lease", "manager.trainyard.dev", "--namespace", hubNamespace,
			"-o", "jsonpath={.spec.holderIdentity}")
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(holder).NotTo(gomega.BeEmpty())
	})
	log, err := os.ReadFile(p.LogPath)
	check.Must(t, err)
	if strings.Contains(string(log), "forbidden") {
		t.Errorf("the log tells of missing rights:\n%s", log)
	}
}

var eventually = check.Within(timeout, poll)

// inventory returns all objects of the cluster, but Events and what the API server writes for itself.
func inventory(t *testing.T) (objects map[string]bool) {
	t.Helper()
	eventually(t, "API server to know which kinds it serves", func(g gomega.Gomega) {
		var err error
		objects, err = tryInventory(t)
		g.Expect(err).To(gomega.Succeed())
	})
	return objects
}

// tryInventory fails if a kind that was listed is not served any more: an API server lists a CRD for a moment after its
// deletion.
func tryInventory(t *testing.T) (objects map[string]bool, err error) {
	t.Helper()
	var kinds []string
	for kind := range strings.FieldsSeq(kubectl(t, "api-resources", "--verbs=list", "--output=name", "--cached=false")) {
		if !slices.Contains([]string{"events", "events.events.k8s.io", "apiservices.apiregistration.k8s.io"}, kind) {
			kinds = append(kinds, kind)
		}
	}
	const line = "go-template={{range .items}}{{.kind}} {{with .metadata.namespace}}{{.}}/{{end}}{{.metadata.name}}\n{{end}}"
	found, err := cluster.Kubectl(t.Context(), "get", strings.Join(kinds, ","), "--all-namespaces", "--output", line)
	if err != nil {
		return nil, err
	}
	objects = map[string]bool{}
	for object := range strings.Lines(string(found)) {
		objects[strings.TrimSpace(object)] = true
	}
	return objects, nil
}

// expectLeft checks which objects are there now that were not there before.
func expectLeft(t *testing.T, before map[string]bool, want []string) {
	t.Helper()
	var left []string
	for object := range inventory(t) {
		if !before[object] {
			left = append(left, object)
		}
	}
	want = slices.DeleteFunc(want, func(object string) bool { return before[object] })
	slices.Sort(left)
	slices.Sort(want)
	check.Diff(t, want, left, "objects that are left")
}
