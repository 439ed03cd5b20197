// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

const hubID = "hub-1"

// patience is the timeout for quick things on a busy machine.
const patience = 60 * time.Second

// shared is the API server of the tests that do not damage it. It has all CRDs, and DeviceTaintRules also in a release
// that does not serve them by default.
var shared = stage.ShareWith(func(ctx context.Context, cleanup func(func() error)) (*clusters.Cluster, error) {
	crds, err := allCRDs(ctx)
	if err != nil {
		return nil, err
	}
	cluster, err := clusters.Start(ctx, clusters.Options{
		Name: "worker", CRDs: crds, APIServerArgs: []string{"--runtime-config=resource.k8s.io/v1beta2=true"},
	})
	if err == nil {
		cleanup(cluster.Stop)
	}
	return cluster, err
})

func TestMain(m *testing.M) { shared.Main(m) }

func allCRDs(ctx context.Context) ([]string, error) {
	crds, err := clusters.ModulePaths(ctx, clusters.TrainerCRDs, clusters.JobSetCRDs)
	return append(crds, "../config/crd/worker/trainyard.dev_executionleases.yaml"), err
}

// ownServer starts an API server for one test.
func ownServer(t *testing.T, name string, crds ...string) *clusters.Cluster {
	t.Helper()
	cluster, err := clusters.Start(t.Context(), clusters.Options{Name: name, CRDs: crds})
	if err != nil {
		t.Fatalf("this test needs a real API server (make controlplane builds it): %v", err)
	}
	t.Cleanup(func() { check.Must(t, cluster.Stop()) })
	return cluster
}

func adminOf(t *testing.T, cluster *clusters.Cluster) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster.Config)
	check.Must(t, err)
	return client
}

// uidOf returns the cluster ID, read by the admin.
func uidOf(t *testing.T, cluster *clusters.Cluster) types.UID {
	t.Helper()
	namespace, err := adminOf(t, cluster).CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	check.Must(t, err)
	return namespace.UID
}

var account, grant = stage.Account, stage.Grant

// hubRules are the rights with which a connection has nothing to complain about.
func hubRules() []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	return append(neededRules(),
		rbacv1.PolicyRule{APIGroups: []string{"jobset.x-k8s.io"}, Resources: []string{"jobsets"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"trainyard.dev"}, Resources: []string{"executionleases"}, Verbs: append(read, "create", "patch")},
		rbacv1.PolicyRule{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"devicetaintrules"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices", "deviceclasses", "resourceclaims", "resourceclaimtemplates"}, Verbs: read},
	)
}

// neededRules are rights with which a worker becomes Connected.
func neededRules() []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces", "nodes", "pods"}, Verbs: read},
		{APIGroups: []string{"trainer.kubeflow.org"}, Resources: []string{"trainingruntimes", "clustertrainingruntimes"}, Verbs: read},
		{
			APIGroups: []string{"trainer.kubeflow.org"}, Resources: []string{"trainjobs"},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
		},
	}
}

func adminCredentials(cluster *clusters.Cluster) remote.Credentials {
	return remote.Credentials{Config: cluster.Config, Fingerprint: "admin"}
}

// newFleet returns a fleet with short intervals and timeouts.
func newFleet(t *testing.T, change ...func(*remote.Options)) *remote.Fleet {
	t.Helper()
	opts := remote.Options{
		HubID: hubID, ProbeInterval: time.Second, ProbeTimeout: 5 * time.Second, RequestTimeout: 10 * time.Second, FailureThreshold: 3,
	}
	for _, c := range change {
		c(&opts)
	}
	ctx, cancel := context.WithCancel(context.Background())
	fleet, err := remote.NewFleet(ctx, opts)
	check.Must(t, err)
	t.Cleanup(func() {
		for _, cluster := range fleet.List() {
			fleet.Remove(cluster.Name())
		}
		cancel()
		fleet.Wait()
	})
	return fleet
}

func get(t *testing.T, fleet *remote.Fleet, name v1alpha1.ClusterName) *remote.Cluster {
	t.Helper()
	cluster, ok := fleet.Get(name)
	if !ok {
		t.Fatalf("fleet has no worker %q", name)
	}
	return cluster
}

// reach waits for a state and returns the status with it.
func reach(t *testing.T, cluster *remote.Cluster, state remote.State) remote.Status {
	t.Helper()
	var status remote.Status
	gomega.NewWithT(t).Eventually(func() string {
		status = cluster.Status()
		if status.State == state {
			return state.String()
		}
		return status.State.String() + ": " + status.Message
	}, patience, 5*time.Millisecond).Should(gomega.Equal(state.String()))
	return status
}

// known waits until the inventory of a Connected worker is reliable.
func known(t *testing.T, cluster *remote.Cluster) remote.Status {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() capacity.State { return cluster.Status().Capacity }, patience, 5*time.Millisecond).Should(
		gomega.Equal(capacity.Known))
	return cluster.Status()
}

// journal records what a fleet reports to its subscribers.
type journal struct {
	mu     sync.Mutex
	states map[v1alpha1.ClusterName][]string
}

func keepJournal(fleet *remote.Fleet) *journal {
	j := &journal{states: map[v1alpha1.ClusterName][]string{}}
	fleet.Subscribe(func(name v1alpha1.ClusterName, status remote.Status) {
		j.mu.Lock()
		defer j.mu.Unlock()
		states := j.states[name]
		if len(states) == 0 || states[len(states)-1] != status.State.String() {
			j.states[name] = append(states, status.State.String())
		}
	})
	return j
}

func (j *journal) of(name v1alpha1.ClusterName) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.states[name], " ")
}

// serverLists returns the API server's own count of lists of the cached kinds, streamed or not, from all clients.
func serverLists(t *testing.T, cluster *clusters.Cluster) string {
	t.Helper()
	data, err := cluster.Metrics(t.Context())
	check.Must(t, err)
	var counts []string
	for line := range strings.Lines(string(data)) {
		ofLists := strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `verb="LIST"`)
		ofStreams := strings.HasPrefix(line, "apiserver_watch_list_duration_seconds_count{")
		for _, resource := range []string{
			"nodes", "pods", "namespaces", "trainjobs", "trainingruntimes", "clustertrainingruntimes", "jobsets", "executionleases",
		} {
			if (ofLists || ofStreams) && strings.Contains(line, fmt.Sprintf("resource=%q", resource)) {
				counts = append(counts, strings.TrimSpace(line))
			}
		}
	}
	return strings.Join(counts, "\n")
}

// series returns the values of one of the package's metrics for a worker, by its other labels.
func series(t *testing.T, metric string, name v1alpha1.ClusterName) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	check.Must(t, err)
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, m := range family.GetMetric() {
			labels, ours := []string{}, false
			for _, pair := range m.GetLabel() {
				if pair.GetName() == "cluster" {
					ours = pair.GetValue() == string(name)
				} else {
					labels = append(labels, pair.GetValue())
				}
			}
			if ours {
				values[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return values
}

// awaitOptional waits until the optional kinds are listed too.
func awaitOptional(t *testing.T, cluster *remote.Cluster) {
	t.Helper()
	for _, object := range []client.Object{newJobSet("none"), &v1alpha1.ExecutionLease{ObjectMeta: metav1.ObjectMeta{Name: "none"}}} {
		gomega.NewWithT(t).Eventually(func() error {
			return client.IgnoreNotFound(cluster.Cache().Get(t.Context(), client.ObjectKeyFromObject(object), object))
		}, patience, 5*time.Millisecond).Should(gomega.Succeed())
	}
}

// ownLists returns the package's own count of lists on a worker.
func ownLists(t *testing.T, name v1alpha1.ClusterName) string {
	t.Helper()
	counts := series(t, "trainyard_worker_requests_total", name)
	maps.DeleteFunc(counts, func(labels string, _ float64) bool { return !strings.Contains(labels, "list") })
	return fmt.Sprint(counts)
}
