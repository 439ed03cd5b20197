// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterprofile_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/clusterprofile"
	"github.com/trainyard/trainyard/controllers/hub/workercluster"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	// profiles is the namespace of the inventory, as in config/cluster-profiles.
	profiles  = "cluster-inventory"
	elsewhere = "elsewhere"
	namespace = "trainyard-system"
	patience  = 60 * time.Second
)

// environment is a hub with an inventory and two workers. A manager with the rights of config/ runs the controllers of
// ClusterProfiles and WorkerClusters.
type environment struct {
	hub, first, second *stage.Server
	admin              client.Client
	events             *events.FakeRecorder
}

var shared = stage.ShareEnvironment(newEnvironment, "first", "second")

func TestMain(m *testing.M) { shared.Main(m) }

func newEnvironment(ctx context.Context, set *stage.Stage) (*environment, error) {
	if err := inventory.AddToScheme(set.Scheme); err != nil {
		return nil, err
	}
	e := &environment{hub: set.Hub, first: set.Workers[0], second: set.Workers[1], events: events.NewFakeRecorder(1000)}
	var err error
	if e.admin, err = client.New(e.hub.Cluster.Config, client.Options{Scheme: set.Scheme}); err != nil {
		return nil, err
	}
	for _, name := range []string{profiles, elsewhere} {
		if err := e.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return nil, err
		}
	}
	mgr, err := e.newManager(ctx, set)
	if err != nil {
		return nil, err
	}
	set.Cleanup(stage.Run(mgr))
	// The kind comes when the manager works already, as with an inventory that is installed later.
	return e, e.installInventory(ctx)
}

func (e *environment) installInventory(ctx context.Context) error {
	paths, err := clusters.ModulePaths(ctx, clusters.ModuleFile{
		Module: "sigs.k8s.io/cluster-inventory-api", Path: "config/crd/bases/multicluster.x-k8s.io_clusterprofiles.yaml",
	})
	if err != nil {
		return err
	}
	return e.hub.Cluster.InstallCRDs(ctx, paths...)
}

// newManager makes a manager that is the service account of config/rbac.
func (e *environment) newManager(ctx context.Context, set *stage.Stage) (ctrl.Manager, error) {
	module, err := clusters.ModuleDir(ctx, "github.com/trainyard/trainyard")
	if err != nil {
		return nil, err
	}
	for _, part := range []string{"namespace", "rbac", "cluster-profiles"} {
		if err := e.hub.Cluster.ApplyKustomization(ctx, filepath.Join(module, "config", part)); err != nil {
			return nil, err
		}
	}
	config := rest.CopyConfig(e.hub.Cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":trainyard-manager",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: set.Scheme, Metrics: server.Options{BindAddress: "0"}, Logger: logr.Discard(),
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: map[string]cache.Config{namespace: {}}}}},
	})
	if err != nil {
		return nil, err
	}
	if err := records.AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	if err := e.addWorkers(mgr, set); err != nil {
		return nil, err
	}
	all, err := clusterprofile.NewInventory(clusterprofile.InventoryOptions{
		Config: config, HTTPClient: mgr.GetHTTPClient(), Namespace: profiles, Logger: logr.Discard(),
		Selector: labels.SelectorFromSet(labels.Set{"fleet": "gpu"}), SearchInterval: 100 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	return mgr, clusterprofile.NewReconciler(clusterprofile.Options{
		Hub: mgr.GetClient(), Inventory: all, Namespace: namespace, Recorder: e.events,
		Property: func(name string) bool { return name == "region" },
	}).Add(mgr)
}

func (e *environment) addWorkers(mgr ctrl.Manager, set *stage.Stage) error {
	fleet, err := set.StartFleet(remote.Options{HubID: string(e.hub.ID)})
	if err != nil {
		return err
	}
	return workercluster.NewReconciler(workercluster.Options{
		Hub: mgr.GetClient(), HubID: e.hub.ID, Fleet: fleet, Members: nobody{}, Clock: clock.RealClock{},
		Credentials: &kubeconfigs.Loader{Reader: mgr.GetClient(), Namespace: namespace, Clock: clock.RealClock{}},
		Files:       kubeconfigs.NewFileWatcher(logr.Discard(), func(string) {}),
	}).Add(mgr)
}

// nobody are no controllers of workers.
type nobody struct{}

func (nobody) Join(v1alpha1.ClusterName, *remote.Cluster) error { return nil }
func (nobody) Leave(v1alpha1.ClusterName)                       {}

// profile creates a ClusterProfile that is selected. It is deleted with its WorkerCluster when the test ends.
func (e *environment) profile(t *testing.T, namespace, name string, status inventory.ClusterProfileStatus) *inventory.ClusterProfile {
	t.Helper()
	object := &inventory.ClusterProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"fleet": "gpu"}},
		Spec:       inventory.ClusterProfileSpec{ClusterManager: inventory.ClusterManager{Name: "test"}},
	}
	check.Must(t, e.admin.Create(t.Context(), object))
	t.Cleanup(func() {
		ctx := context.Background()
		check.Must(t, client.IgnoreNotFound(e.admin.Delete(ctx, object)))
		// A manager that has not seen the deletion makes the WorkerCluster again: it must see the deletion first.
		eventually(t, "the manager to see that the profile is deleted", func(g gomega.Gomega) {
			worker := &v1alpha1.WorkerCluster{}
			if e.admin.Get(ctx, client.ObjectKey{Name: name}, worker) == nil && worker.Annotations[v1alpha1.AnnotationClusterProfile] != "" {
				g.Expect(worker.Spec.Unschedulable).To(gomega.BeTrue())
			}
		})
		check.Must(t, client.IgnoreNotFound(e.admin.Delete(ctx, &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})))
	})
	object.Status = status
	check.Must(t, e.admin.Status().Update(t.Context(), object))
	return object
}

// becomes waits until the WorkerCluster of a name is as it should be.
func (e *environment) becomes(t *testing.T, name string, check func(g gomega.Gomega, worker *v1alpha1.WorkerCluster)) {
	t.Helper()
	eventually(t, "WorkerCluster "+name, func(g gomega.Gomega) {
		worker := &v1alpha1.WorkerCluster{}
		g.Expect(e.admin.Get(t.Context(), client.ObjectKey{Name: name}, worker)).To(gomega.Succeed())
		check(g, worker)
	})
}

// credentials writes the Secret that kubectl trainyard join would write.
func (e *environment) credentials(t *testing.T, name string, kubeconfig []byte) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-kubeconfig"},
		Data:       map[string][]byte{kubeconfigs.SecretKey: kubeconfig},
	}
	_ = e.admin.Delete(t.Context(), secret.DeepCopy())
	check.Must(t, e.admin.Create(t.Context(), secret))
}

func kubeconfigOf(t *testing.T, s *stage.Server) []byte {
	t.Helper()
	kubeconfig, err := s.Cluster.KubeconfigBytes()
	check.Must(t, err)
	return kubeconfig
}

// is waits for a reason of the condition Ready.
func is(reason string) func(gomega.Gomega, *v1alpha1.WorkerCluster) {
	return func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
		g.Expect(ready).To(gomega.HaveValue(gomega.HaveField("Reason", reason)))
	}
}

// says waits for an Event with a reason and the words.
func (e *environment) says(t *testing.T, reason string, words ...string) {
	t.Helper()
	for {
		select {
		case event := <-e.events.Events:
			found := strings.Contains(event, " "+reason+" ")
			for _, word := range words {
				found = found && strings.Contains(event, word)
			}
			if found {
				return
			}
		case <-time.After(patience):
			t.Fatalf("no Event %s with %q", reason, words)
		}
	}
}

// A profile becomes a WorkerCluster, which is used as soon as there are credentials, whatever the inventory says about
// the health of its cluster. The labels follow. The deletion of the profile cordons the worker, and its return ends
// that.
func TestProfileBecomesWorker(t *testing.T) {
	e := shared.Get(t)
	sick := inventory.ClusterProfileStatus{
		Conditions: []metav1.Condition{{
			Type: inventory.ClusterConditionControlPlaneHealthy, Status: metav1.ConditionFalse, Reason: "Down", LastTransitionTime: metav1.Now(),
		}},
		Properties: []inventory.Property{{Name: "region", Value: "east"}, {Name: "nodes", Value: "7"}},
	}
	object := e.profile(t, profiles, "becomes", sick)
	e.says(t, "Registered", `"becomes-kubeconfig"`, `"`+namespace+`"`)
	e.becomes(t, "becomes", is(v1alpha1.ReasonCredentialsNotFound))
	e.credentials(t, "becomes", kubeconfigOf(t, e.first))
	e.becomes(t, "becomes", is(v1alpha1.ReasonConnected))
	e.becomes(t, "becomes", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		g.Expect(worker.Labels).To(gomega.Equal(map[string]string{"fleet": "gpu", "region": "east"}))
	})

	check.Must(t, e.admin.Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":"a"}}}`))))
	e.becomes(t, "becomes", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		g.Expect(worker.Labels).To(gomega.HaveKeyWithValue("tier", "a"))
	})
	check.Must(t, e.admin.Delete(t.Context(), object))
	e.says(t, v1alpha1.ReasonClusterProfileMissing, profiles+"/becomes")
	e.becomes(t, "becomes", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		g.Expect(worker.Spec.Unschedulable).To(gomega.BeTrue())
		g.Expect(worker.Labels).To(gomega.HaveKeyWithValue("tier", "a"), "policies go on selecting the worker")
		is(v1alpha1.ReasonConnected)(g, worker)
	})
	e.profile(t, profiles, "becomes", sick)
	e.becomes(t, "becomes", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		g.Expect(worker.Spec.Unschedulable).To(gomega.BeFalse())
		g.Expect(worker.Labels).NotTo(gomega.HaveKey("tier"))
		is(v1alpha1.ReasonConnected)(g, worker)
	})
}

// A profile that is no longer selected is as good as deleted.
func TestDeselectedProfile(t *testing.T) {
	e := shared.Get(t)
	object := e.profile(t, profiles, "deselected", inventory.ClusterProfileStatus{})
	e.becomes(t, "deselected", is(v1alpha1.ReasonCredentialsNotFound))
	check.Must(t, e.admin.Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"fleet":"cpu"}}}`))))
	e.becomes(t, "deselected", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		g.Expect(worker.Spec.Unschedulable).To(gomega.BeTrue())
	})
}

// Attack: a profile has the name of a WorkerCluster that an admin made. That WorkerCluster is not written, and an Event
// says so. Attack: a profile of another namespace has that name. Nobody reads that profile, and the manager has no
// right to read it.
func TestWorkerOfAnAdmin(t *testing.T) {
	e := shared.Get(t)
	worker := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: "ours", Labels: map[string]string{"fleet": "mine"}}}
	worker.Spec.Connection.KubeconfigPath = "/does/not/exist"
	check.Must(t, e.admin.Create(t.Context(), worker))
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(e.admin.Delete(context.Background(), worker.DeepCopy()))) })
	e.becomes(t, "ours", is(v1alpha1.ReasonCredentialsNotFound))
	check.Must(t, e.admin.Get(t.Context(), client.ObjectKeyFromObject(worker), worker))

	e.profile(t, elsewhere, "foreign", inventory.ClusterProfileStatus{})
	e.profile(t, profiles, "ours", inventory.ClusterProfileStatus{})
	e.says(t, v1alpha1.ReasonWorkerClusterExists, `"ours"`, v1alpha1.AnnotationClusterProfile+"="+profiles+"/ours")
	after := worker.DeepCopy()
	check.Must(t, e.admin.Get(t.Context(), client.ObjectKeyFromObject(worker), after))
	if after.ResourceVersion != worker.ResourceVersion {
		t.Errorf("the admin's WorkerCluster was written: %v", after.ManagedFields)
	}
	// The foreign profile came before a profile that the manager has looked at.
	if err := client.IgnoreNotFound(e.admin.Get(t.Context(), client.ObjectKey{Name: "foreign"}, &v1alpha1.WorkerCluster{})); err != nil {
		t.Fatal(err)
	} else if e.admin.Get(t.Context(), client.ObjectKey{Name: "foreign"}, &v1alpha1.WorkerCluster{}) == nil {
		t.Error("a profile of another namespace became a WorkerCluster")
	}

	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationClusterProfile, profiles+"/ours")
	check.Must(t, e.admin.Patch(t.Context(), after, client.RawPatch(types.MergePatchType, patch)))
	e.becomes(t, "ours", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		g.Expect(worker.Labels).To(gomega.HaveKeyWithValue("fleet", "gpu"))
		g.Expect(worker.Spec.Connection.KubeconfigPath).To(gomega.Equal("/does/not/exist"))
	})
}

// Attack: the status of a profile names another server, and a program to run. It has no effect: credentials and address
// come from the admin's Secret. Attack: that Secret leads to another cluster, and then has an exec plugin. The manager
// refuses the first Secret because of the cluster's identity, and the second as insecure.
func TestStatusOfAProfileGivesNoAccess(t *testing.T) {
	e := shared.Get(t)
	access := inventory.AccessProvider{Name: "steal"}
	access.Cluster.Server = e.second.Cluster.Config.Host
	access.Cluster.InsecureSkipTLSVerify = true
	e.profile(t, profiles, "led", inventory.ClusterProfileStatus{AccessProviders: []inventory.AccessProvider{access}})
	e.becomes(t, "led", is(v1alpha1.ReasonCredentialsNotFound))
	e.credentials(t, "led", kubeconfigOf(t, e.second))
	e.becomes(t, "led", is(v1alpha1.ReasonConnected))
	e.becomes(t, "led", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		g.Expect(worker.Status.ClusterID).To(gomega.Equal(e.second.ID))
	})
	e.credentials(t, "led", kubeconfigOf(t, e.first))
	e.becomes(t, "led", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
		g.Expect(ready).To(gomega.HaveValue(gomega.HaveField("Reason",
			gomega.BeElementOf(v1alpha1.ReasonIdentityChanged, v1alpha1.ReasonDuplicate))))
		g.Expect(worker.Status.ClusterID).To(gomega.Equal(e.second.ID))
	})
	program := "users:\n- name: admin\n  user:\n    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      command: steal\n"
	e.credentials(t, "led", []byte("apiVersion: v1\nkind: Config\n"+program))
	e.becomes(t, "led", is(v1alpha1.ReasonInsecureKubeconfig))
}

var eventually = check.Within(patience, 20*time.Millisecond)
