// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterprofile_test

import (
	"context"
	"fmt"
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
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/clusterprofile"
	"github.com/trainyard/trainyard/controllers/hub/workercluster"
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
	namespace = stage.SystemNamespace
	patience  = check.Patience
)

// scene is a hub with an inventory and two workers. A manager with the rights of config/ runs the controllers of
// ClusterProfiles and WorkerClusters.
type scene struct{ *stage.Scene }

func newScene(t *testing.T) *scene {
	t.Helper()
	return &scene{shared.Get(t).Scene(t)}
}

// recorder has the Events of the manager.
var recorder = events.NewFakeRecorder(1000)

var shared = stage.Share(prepare, "first", "second")

func TestMain(m *testing.M) { shared.Main(m) }

func prepare(ctx context.Context, s *stage.Stage) error {
	if err := inventory.AddToScheme(s.Scheme); err != nil {
		return err
	}
	for _, name := range []string{profiles, elsewhere} {
		if err := s.Hub.Admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	if err := s.InstallConfig(ctx, "namespace", "rbac", "cluster-profiles"); err != nil {
		return err
	}
	mgr, err := newManager(ctx, s)
	if err != nil {
		return err
	}
	s.Cleanup(stage.Run(mgr))
	// The kind comes when the manager works already, as with an inventory that is installed later.
	return installInventory(ctx, s.Hub)
}

func installInventory(ctx context.Context, hub *stage.Server) error {
	paths, err := clusters.ModulePaths(ctx, clusters.ModuleFile{
		Module: "sigs.k8s.io/cluster-inventory-api", Path: "config/crd/bases/multicluster.x-k8s.io_clusterprofiles.yaml",
	})
	if err != nil {
		return err
	}
	return hub.Cluster.InstallCRDs(ctx, paths...)
}

// newManager makes a manager that is the service account of config/rbac.
func newManager(ctx context.Context, s *stage.Stage) (ctrl.Manager, error) {
	mgr, err := s.NewManager(ctx, s.ManagerAccount(), func(o *ctrl.Options) {
		o.Cache.ByObject = map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: map[string]cache.Config{namespace: {}}}}
	})
	if err != nil {
		return nil, err
	}
	if err := addWorkers(mgr, s); err != nil {
		return nil, err
	}
	all, err := clusterprofile.NewInventory(clusterprofile.InventoryOptions{
		Config: s.ManagerAccount(), HTTPClient: mgr.GetHTTPClient(), Namespace: profiles, Logger: logr.Discard(),
		Selector: labels.SelectorFromSet(labels.Set{"fleet": "gpu"}), SearchInterval: 100 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	return mgr, clusterprofile.NewReconciler(clusterprofile.Options{
		Hub: mgr.GetClient(), Inventory: all, Namespace: namespace, Recorder: recorder,
		Property: func(name string) bool { return name == "region" },
	}).Add(mgr)
}

func addWorkers(mgr ctrl.Manager, s *stage.Stage) error {
	fleet, err := s.StartFleet(remote.Options{HubID: string(s.Hub.ID)})
	if err != nil {
		return err
	}
	return workercluster.NewReconciler(workercluster.Options{
		Hub: mgr.GetClient(), HubID: s.Hub.ID, Fleet: fleet, Members: nobody{}, Clock: clock.RealClock{},
		Credentials: &kubeconfigs.Loader{Reader: mgr.GetClient(), Namespace: namespace, Clock: clock.RealClock{}},
		Files:       kubeconfigs.NewFileWatcher(logr.Discard(), func(string) {}),
	}).Add(mgr)
}

// nobody are no controllers of workers.
type nobody struct{}

func (nobody) Join(v1alpha1.ClusterName, *remote.Cluster) error { return nil }
func (nobody) Leave(v1alpha1.ClusterName)                       {}

// profile creates a ClusterProfile that is selected. It is deleted with its WorkerCluster when the test ends.
func (s *scene) profile(t *testing.T, namespace, name string, status inventory.ClusterProfileStatus) *inventory.ClusterProfile {
	t.Helper()
	object := &inventory.ClusterProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"fleet": "gpu"}},
		Spec:       inventory.ClusterProfileSpec{ClusterManager: inventory.ClusterManager{Name: "test"}},
	}
	check.Must(t, s.Hub.Admin.Create(t.Context(), object))
	t.Cleanup(func() {
		ctx := context.Background()
		check.Must(t, client.IgnoreNotFound(s.Hub.Admin.Delete(ctx, object)))
		// A manager that has not seen the deletion makes the WorkerCluster again: it must see the deletion first.
		eventually(t, "the manager to see that the profile is deleted", func(g gomega.Gomega) {
			worker := &v1alpha1.WorkerCluster{}
			if s.Hub.Admin.Get(ctx, client.ObjectKey{Name: name}, worker) == nil && worker.Annotations[v1alpha1.AnnotationClusterProfile] != "" {
				g.Expect(worker.Spec.Unschedulable).To(gomega.BeTrue())
			}
		})
		check.Must(t, client.IgnoreNotFound(s.Hub.Admin.Delete(ctx, &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})))
	})
	object.Status = status
	check.Must(t, s.Hub.Admin.Status().Update(t.Context(), object))
	return object
}

// becomes waits until the WorkerCluster of a name is as it should be.
func (s *scene) becomes(t *testing.T, name string, check func(g gomega.Gomega, worker *v1alpha1.WorkerCluster)) {
	t.Helper()
	eventually(t, "WorkerCluster "+name, func(g gomega.Gomega) {
		worker := &v1alpha1.WorkerCluster{}
		g.Expect(s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: name}, worker)).To(gomega.Succeed())
		check(g, worker)
	})
}

// credentials writes the Secret that kubectl trainyard join would write.
func (s *scene) credentials(t *testing.T, name string, leadsTo *stage.Server) {
	t.Helper()
	kubeconfig, err := leadsTo.Cluster.KubeconfigBytes()
	check.Must(t, err)
	s.WriteKubeconfig(t, name+"-kubeconfig", kubeconfig)
}

// is waits for a reason of the condition Ready.
func is(reason string) func(gomega.Gomega, *v1alpha1.WorkerCluster) {
	return func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
		g.Expect(ready).To(gomega.HaveValue(gomega.HaveField("Reason", reason)))
	}
}

// says waits for an Event with a reason and the words.
func (s *scene) says(t *testing.T, reason string, words ...string) {
	t.Helper()
	for {
		select {
		case event := <-recorder.Events:
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
	s := newScene(t)
	sick := inventory.ClusterProfileStatus{
		Conditions: []metav1.Condition{{
			Type: inventory.ClusterConditionControlPlaneHealthy, Status: metav1.ConditionFalse, Reason: "Down", LastTransitionTime: metav1.Now(),
		}},
		Properties: []inventory.Property{{Name: "region", Value: "east"}, {Name: "nodes", Value: "7"}},
	}
	object := s.profile(t, profiles, "becomes", sick)
	s.says(t, "Registered", `"becomes-kubeconfig"`, `"`+namespace+`"`)
	s.becomes(t, "becomes", is(v1alpha1.ReasonCredentialsNotFound))
	s.credentials(t, "becomes", s.Workers[0])
	s.becomes(t, "becomes", is(v1alpha1.ReasonConnected))
	s.becomes(t, "becomes", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		g.Expect(worker.Labels).To(gomega.Equal(map[string]string{"fleet": "gpu", "region": "east"}))
	})

	check.Must(t, s.Hub.Admin.Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":"a"}}}`))))
	s.becomes(t, "becomes", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		g.Expect(worker.Labels).To(gomega.HaveKeyWithValue("tier", "a"))
	})
	check.Must(t, s.Hub.Admin.Delete(t.Context(), object))
	s.says(t, v1alpha1.ReasonClusterProfileMissing, profiles+"/becomes")
	s.becomes(t, "becomes", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		g.Expect(worker.Spec.Unschedulable).To(gomega.BeTrue())
		g.Expect(worker.Labels).To(gomega.HaveKeyWithValue("tier", "a"), "policies go on selecting the worker")
		is(v1alpha1.ReasonConnected)(g, worker)
	})
	s.profile(t, profiles, "becomes", sick)
	s.becomes(t, "becomes", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		g.Expect(worker.Spec.Unschedulable).To(gomega.BeFalse())
		g.Expect(worker.Labels).NotTo(gomega.HaveKey("tier"))
		is(v1alpha1.ReasonConnected)(g, worker)
	})
}

// A profile that is no longer selected is as good as deleted.
func TestDeselectedProfile(t *testing.T) {
	s := newScene(t)
	object := s.profile(t, profiles, "deselected", inventory.ClusterProfileStatus{})
	s.becomes(t, "deselected", is(v1alpha1.ReasonCredentialsNotFound))
	check.Must(t, s.Hub.Admin.Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"fleet":"cpu"}}}`))))
	s.becomes(t, "deselected", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		g.Expect(worker.Spec.Unschedulable).To(gomega.BeTrue())
	})
}

// Attack: a profile has the name of a WorkerCluster that an admin made. That WorkerCluster is not written, and an Event
// says so. Attack: a profile of another namespace has that name. Nobody reads that profile, and the manager has no
// right to read it.
func TestWorkerOfAnAdmin(t *testing.T) {
	s := newScene(t)
	worker := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: "ours", Labels: map[string]string{"fleet": "mine"}}}
	worker.Spec.Connection.KubeconfigPath = "/does/not/exist"
	check.Must(t, s.Hub.Admin.Create(t.Context(), worker))
	t.Cleanup(func() {
		check.Must(t, client.IgnoreNotFound(s.Hub.Admin.Delete(context.Background(), worker.DeepCopy())))
	})
	s.becomes(t, "ours", is(v1alpha1.ReasonCredentialsNotFound))
	check.Must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(worker), worker))

	s.profile(t, elsewhere, "foreign", inventory.ClusterProfileStatus{})
	s.profile(t, profiles, "ours", inventory.ClusterProfileStatus{})
	s.says(t, v1alpha1.ReasonWorkerClusterExists, `"ours"`, v1alpha1.AnnotationClusterProfile+"="+profiles+"/ours")
	after := worker.DeepCopy()
	check.Must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(worker), after))
	if after.ResourceVersion != worker.ResourceVersion {
		t.Errorf("the admin's WorkerCluster was written: %v", after.ManagedFields)
	}
	// The foreign profile came before a profile that the manager has looked at.
	if err := client.IgnoreNotFound(s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: "foreign"}, &v1alpha1.WorkerCluster{})); err != nil {
		t.Fatal(err)
	} else if s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: "foreign"}, &v1alpha1.WorkerCluster{}) == nil {
		t.Error("a profile of another namespace became a WorkerCluster")
	}

	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationClusterProfile, profiles+"/ours")
	check.Must(t, s.Hub.Admin.Patch(t.Context(), after, client.RawPatch(types.MergePatchType, patch)))
	s.becomes(t, "ours", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		g.Expect(worker.Labels).To(gomega.HaveKeyWithValue("fleet", "gpu"))
		g.Expect(worker.Spec.Connection.KubeconfigPath).To(gomega.Equal("/does/not/exist"))
	})
}

// Attack: the status of a profile names another server, and a program to run. It has no effect: credentials and address
// come from the admin's Secret. Attack: that Secret leads to another cluster, and then has an exec plugin. The manager
// refuses the first Secret because of the cluster's identity, and the second as insecure.
func TestStatusOfAProfileGivesNoAccess(t *testing.T) {
	s := newScene(t)
	access := inventory.AccessProvider{Name: "steal"}
	access.Cluster.Server = s.Workers[1].Cluster.Config.Host
	access.Cluster.InsecureSkipTLSVerify = true
	s.profile(t, profiles, "led", inventory.ClusterProfileStatus{AccessProviders: []inventory.AccessProvider{access}})
	s.becomes(t, "led", is(v1alpha1.ReasonCredentialsNotFound))
	s.credentials(t, "led", s.Workers[1])
	s.becomes(t, "led", is(v1alpha1.ReasonConnected))
	s.becomes(t, "led", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		g.Expect(worker.Status.ClusterID).To(gomega.Equal(s.Workers[1].ID))
	})
	s.credentials(t, "led", s.Workers[0])
	s.becomes(t, "led", func(g gomega.Gomega, worker *v1alpha1.WorkerCluster) {
		ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
		g.Expect(ready).To(gomega.HaveValue(gomega.HaveField("Reason",
			gomega.BeElementOf(v1alpha1.ReasonIdentityChanged, v1alpha1.ReasonDuplicate))))
		g.Expect(worker.Status.ClusterID).To(gomega.Equal(s.Workers[1].ID))
	})
	program := "users:\n- name: admin\n  user:\n    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      command: steal\n"
	s.WriteKubeconfig(t, "led-kubeconfig", []byte("apiVersion: v1\nkind: Config\n"+program))
	s.becomes(t, "led", is(v1alpha1.ReasonInsecureKubeconfig))
}

var eventually = check.Within(patience, 20*time.Millisecond)
