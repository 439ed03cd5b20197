// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// TestLeave takes a worker out while jobs run there. Each part begins with a registered worker. The last part removes
// the agent, so it stays the last.
func TestLeave(t *testing.T) {
	if clusters.OnKind() {
		t.Skip("not on kind: it stops API servers, and reads audit logs")
	}
	t.Run("shared", leaveSharedWorker)
	t.Run("lost", leaveLostWorker)
	t.Run("drained", leaveDrainedWorker)
}

// The worker does not answer, and will not return. Its jobs run elsewhere at once. It returns all the same, and leaves
// for good.
func leaveLostWorker(t *testing.T) {
	join(t)
	jobs := onLeaver(t, "lost-1", "lost-2")
	isReady(t)
	leave(t.Context(), t, onBoth("--force")...).expect(t, 1, "--drain")
	check.Must(t, y.Yard.Workers[leaver].KillAPIServer())
	y.Eventually(t, func(g gomega.Gomega) {
		worker := registered(t)
		g.Expect(worker.Status.Conditions).To(gomega.ContainElement(gomega.And(
			gomega.HaveField("Type", v1alpha1.WorkerClusterReady), gomega.HaveField("Reason", v1alpha1.ReasonUnreachable))))
	})
	leave(t.Context(), t, onHub()...).expect(t, 1, "trainjob default/lost-1 is on the worker", "2 jobs", "--drain", "--force")
	leave(t.Context(), t, onBoth("--force")...).expect(t, 1, "refused", "without --context")
	leave(t.Context(), t, onHub("--drain", "--timeout=5s")...).expect(t, 1, "does not answer", "--force")
	y.Edit(t, leaver, func(w *v1alpha1.WorkerCluster) { w.Spec.Drain = false })
	leave(t.Context(), t, onHub("--force")...).expect(t, 0, "forgotten", "workercluster/leaver has left", "nothing was deleted on the worker")
	isOut(t)
	for _, job := range jobs {
		runsOn(t, stayer, job, 2)
	}

	check.Must(t, y.Yard.Workers[leaver].StartAPIServer(t.Context()))
	leave(t.Context(), t, onBoth()...).expect(t, 0, "there is no WorkerCluster", "copies of this hub: default/lost-1, default/lost-2", "worker-agent")
	for _, job := range jobs {
		copied := &trainer.TrainJob{}
		check.Must(t, y.Workers[leaver].Get(t.Context(), client.ObjectKeyFromObject(job), copied))
		check.Must(t, y.Workers[leaver].Delete(t.Context(), copied))
		finish(t, stayer, job)
	}
}

// The worker answers. Its jobs go to another worker one after the other, and none runs twice. leave is interrupted, and
// repeated.
func leaveDrainedWorker(t *testing.T) {
	join(t)
	ended := onLeaver(t, "ended")[0]
	finish(t, leaver, ended)
	jobs := onLeaver(t, "drained-1", "drained-2", "drained-3")
	token := tokenOf(t)
	leave(t.Context(), t, onBoth()...).expect(t, 1, "trainjob default/drained-1 is on the worker", "3 jobs", "--drain")
	if worker := registered(t); worker.Spec.Unschedulable || worker.Spec.Drain {
		t.Error("a leave that was refused has changed the worker")
	}

	interrupted, cancel := context.WithCancel(t.Context())
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for interrupted.Err() == nil && !registered(t).Spec.Drain {
			time.Sleep(y.Poll)
		}
		cancel()
	}()
	if o := leave(interrupted, t, onBoth("--drain")...); o.code == 0 {
		t.Error("leave was not interrupted")
	}
	cancel()
	<-watching
	leave(t.Context(), t, onBoth("--drain")...).expect(t, 0, "serviceaccount/trainyard-hub in trainyard-system deleted", "workercluster/leaver has left",
		"left on the worker:", "clustertrainingruntimes that this hub created: torch-distributed", "namespace trainyard-system", "namespace kubeflow-system")
	isOut(t)
	isRevoked(t, token)
	nothingIsLeft(t)
	for _, job := range jobs {
		runsOn(t, stayer, job, 2)
		finish(t, stayer, job)
		ranOnce(t, job)
	}
	leave(t.Context(), t, onBoth("--drain")...).expect(t, 0, "there is no WorkerCluster")

	// Nobody can ask the worker any more about the copy of a job that ended there.
	check.Must(t, y.Hub.Delete(t.Context(), ended))
	y.Eventually(t, func(g gomega.Gomega) {
		err := y.Hub.Get(t.Context(), client.ObjectKeyFromObject(ended), &v1alpha1.Dispatch{})
		g.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue(), "the Dispatch waits: %v", err)
	})
}

// registered returns the WorkerCluster of the leaver.
func registered(t *testing.T) *v1alpha1.WorkerCluster {
	t.Helper()
	worker := &v1alpha1.WorkerCluster{}
	check.Must(t, y.Hub.Get(context.Background(), client.ObjectKey{Name: leaver}, worker))
	return worker
}

// isReady waits until the manager uses the leaver.
func isReady(t *testing.T) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(meta.IsStatusConditionTrue(registered(t).Status.Conditions, v1alpha1.WorkerClusterReady)).To(gomega.BeTrue())
	})
}

// isOut fails the test if the hub has something of the leaver's registration.
func isOut(t *testing.T) {
	t.Helper()
	for name, object := range map[string]client.Object{
		leaver: &v1alpha1.WorkerCluster{}, leaver + "-kubeconfig": &corev1.Secret{},
	} {
		key := client.ObjectKey{Name: name}
		if _, ok := object.(*corev1.Secret); ok {
			key.Namespace = "trainyard-system"
		}
		if err := y.Hub.Get(t.Context(), key, object); !apierrors.IsNotFound(err) {
			t.Errorf("get %T %s: %v, want it gone", object, name, err)
		}
	}
}

// tokenOf returns a client of the leaver with the credentials that the hub has now.
func tokenOf(t *testing.T) kubernetes.Interface {
	t.Helper()
	secret := &corev1.Secret{}
	check.Must(t, y.Hub.Get(t.Context(), client.ObjectKey{Namespace: "trainyard-system", Name: leaver + "-kubeconfig"}, secret))
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"])
	check.Must(t, err)
	c, err := kubernetes.NewForConfig(config)
	check.Must(t, err)
	_, err = c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	check.Must(t, err)
	return c
}

func isRevoked(t *testing.T, token kubernetes.Interface) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) { // The API server remembers for some seconds that a token is valid.
		_, err := token.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		g.Expect(apierrors.IsUnauthorized(err)).To(gomega.BeTrue(), "the worker answers: %v", err)
	})
}

// documented are the objects that stay on a worker, as docs/install.md says: by kind, the names. The CRDs and
// controllers of Kubeflow Trainer and JobSet were there before.
var documented = map[string][]string{
	"namespaces":                {"trainyard-system", "kubeflow-system"},
	"customresourcedefinitions": {"capacityreports.trainyard.dev", "executionleases.trainyard.dev"},
	"clustertrainingruntimes":   {"torch-distributed"},
	"apiservices":               {"v1alpha1.trainyard.dev"}, // The API server makes it of the CRDs.
}

// nothingIsLeft looks through all objects of the leaver, except Events, for objects that belong to Trainyard by name,
// label, namespace or kind.
func nothingIsLeft(t *testing.T) {
	t.Helper()
	config := y.Yard.Workers[leaver].Config
	all, err := dynamic.NewForConfig(config)
	check.Must(t, err)
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	check.Must(t, err)
	lists, err := discover.ServerPreferredResources()
	check.Must(t, err)
	y.Eventually(t, func(g gomega.Gomega) { // Objects that depend on others are deleted a moment later.
		looked := 0
		for _, list := range lists {
			group, err := schema.ParseGroupVersion(list.GroupVersion)
			g.Expect(err).NotTo(gomega.HaveOccurred())
			for i := range list.APIResources {
				resource := &list.APIResources[i]
				if !slices.Contains(resource.Verbs, "list") || resource.Name == "events" {
					continue
				}
				found, err := all.Resource(group.WithResource(resource.Name)).List(t.Context(), metav1.ListOptions{})
				g.Expect(err).NotTo(gomega.HaveOccurred())
				looked += len(found.Items)
				for j := range found.Items {
					object := &found.Items[j]
					if isOurs(object) {
						g.Expect(documented[resource.Name]).To(gomega.ContainElement(object.GetName()),
							"%s %s/%s is left, and not documented", resource.Name, object.GetNamespace(), object.GetName())
					}
				}
			}
		}
		g.Expect(looked).To(gomega.BeNumerically(">", 100), "these cannot be all objects of a cluster")
	})
}

func isOurs(object metav1.Object) bool {
	switch {
	case object.GetName() == "kube-root-ca.crt", object.GetName() == "default":
		return false // Each namespace has them.
	case slices.Contains(documented["namespaces"], object.GetNamespace()), strings.Contains(object.GetName(), "trainyard"):
		return true
	}
	for key, value := range object.GetLabels() {
		if strings.Contains(key, "trainyard") || strings.Contains(value, "trainyard") {
			return true
		}
	}
	return slices.ContainsFunc(object.GetFinalizers(), func(name string) bool { return strings.Contains(name, "trainyard") }) ||
		object.GetNamespace() == metav1.NamespaceDefault && strings.HasPrefix(object.GetName(), "drained-")
}

// ranOnce reads in the audit logs that a job's copy was created once on each worker, and that the first one was
// deleted, with all its pods, before the second was created.
func ranOnce(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	created := map[string]time.Time{}
	for _, worker := range []string{leaver, stayer} {
		creations := successes(t, y.Yard.Workers[worker], "create", "trainjobs", func(name string) bool { return name == job.Name })
		if len(creations) != 1 {
			t.Fatalf("the copy of %s was created %d times on %s", job.Name, len(creations), worker)
		}
		created[worker] = creations[0]
	}
	ofJob := func(name string) bool { return strings.HasPrefix(name, job.Name+"-node-") }
	gone := successes(t, y.Yard.Workers[leaver], "delete", "pods", ofJob)
	if len(gone) == 0 {
		t.Fatalf("the pods of %s were not deleted on the worker that has left", job.Name)
	}
	if last := slices.MaxFunc(gone, time.Time.Compare); !last.Before(created[stayer]) {
		t.Errorf("a pod of %s was deleted at %s, after the next copy was created at %s", job.Name, last, created[stayer])
	}
	g := gomega.NewWithT(t)
	d := y.DispatchOf(g, job)
	g.Expect(d.Spec.Attempt).To(gomega.BeEquivalentTo(2))
	g.Expect(y.PodsOf(g, leaver, job)).To(gomega.BeEmpty())
}

// successes are the times of successful requests, by the audit log of an API server.
func successes(t *testing.T, cluster *clusters.Cluster, verb, resource string, name func(string) bool) []time.Time {
	t.Helper()
	file, err := os.Open(cluster.AuditLog())
	check.Must(t, err)
	defer file.Close()
	var times []time.Time
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // The end, perhaps in the middle of a line.
			return times
		}
		var event auditv1.Event
		check.Must(t, json.Unmarshal(line, &event))
		of := event.ObjectRef
		if event.Stage != auditv1.StageResponseComplete || event.Verb != verb || of == nil || of.Resource != resource || of.Subresource != "" ||
			!name(of.Name) || event.ResponseStatus == nil || event.ResponseStatus.Code >= 300 || strings.Contains(event.RequestURI, "dryRun=") {
			continue // A dry run asks what the pods would become.
		}
		times = append(times, event.StageTimestamp.Time)
	}
}
