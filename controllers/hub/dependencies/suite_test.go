// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/dependencies"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

const workerName = v1alpha1.ClusterName("worker")

var must, eventually = check.Must, check.Eventually

// consented is the cache of the hub's objects that may be brought.
var consented cache.Cache

var shared = stage.Share(func(ctx context.Context, s *stage.Stage) (err error) {
	changed := func(string, v1alpha1.Dependency) {}
	httpClient, err := restClient(s)
	if err != nil {
		return err
	}
	if consented, err = dependencies.NewConsented(ctx, s.Hub.Cluster.Config, httpClient, changed); err != nil {
		return err
	}
	s.Cleanup(stage.Run(consented))
	return errors.Join(s.StartCaches(ctx), s.ConnectAsHub(ctx, "worker", "worker-dependencies"), s.Register(ctx))
}, string(workerName))

func TestMain(m *testing.M) { shared.Main(m) }

// scene is a namespace that Trainyard has made on the worker.
type scene struct {
	*stage.Scene
	worker *stage.Server
	// sent counts the requests to the hub and to the worker.
	sent       *counter
	options    dependencies.Options
	reconciler *dependencies.Reconciler
}

func newScene(t *testing.T) *scene {
	t.Helper()
	all := shared.Get(t)
	s := &scene{Scene: all.Scene(t, all.Hub), worker: all.Workers[0], sent: &counter{}}
	s.makeNamespace(t, map[string]string{v1alpha1.LabelPropagatedBy: stage.HubID})
	s.options = dependencies.Options{
		Cluster: workerName, ClusterID: s.worker.ID, HubID: stage.HubID,
		Hub: counting{s.Cached, s.sent, true}, HubReader: counting{s.Hub.Admin, s.sent, false}, Consented: consented,
		Worker: countingConnection{s.worker.Connection, s.sent}, Enqueue: func(string) {}, Clock: s.Clock,
	}
	s.ChangeWorker(t, workerName, func(w *v1alpha1.WorkerCluster) { w.Status.Dependencies = nil })
	s.restart()
	s.Clock.Step(time.Minute) // The hub's caches are believed.
	s.awaitPolicy(t)
	return s
}

// awaitPolicy waits until the worker has taken up its policy.
func (s *scene) awaitPolicy(t *testing.T) {
	t.Helper()
	eventually(t, "policy in force", func(g gomega.Gomega) {
		asHub, err := s.worker.Connection.Client()
		g.Expect(err).To(gomega.Succeed())
		without := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "without-a-label"}}
		g.Expect(asHub.Create(t.Context(), without, client.DryRunAll)).To(gomega.MatchError(gomega.ContainSubstring("ValidatingAdmissionPolicy")))
	})
}

// makeNamespace makes the scene's namespace on the worker.
func (s *scene) makeNamespace(t *testing.T, labels map[string]string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace, Labels: labels}}
	must(t, s.worker.Admin.Create(t.Context(), namespace))
	s.settleNamespace(t, namespace)
}

// restart is a new process, which remembers nothing.
func (s *scene) restart() { s.reconciler = dependencies.NewReconciler(s.options) }

// secret returns a Secret of the hub with consent.
func (s *scene) secret(name, token string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: map[string]string{
			v1alpha1.LabelPropagate: v1alpha1.PropagateYes, "team": "a", "argocd.argoproj.io/instance": "app",
		}, Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}"}},
		Data: map[string][]byte{"token": []byte(token)},
	}
}

// create creates an object on the hub, and waits for the cache if it has consent.
func (s *scene) create(t *testing.T, object client.Object) {
	t.Helper()
	must(t, s.Hub.Admin.Create(t.Context(), object))
	s.settleHub(t, object)
}

// settleHub waits until the cache of objects with consent shows an object as it is.
func (s *scene) settleHub(t *testing.T, object client.Object) {
	t.Helper()
	gvk, err := s.Hub.Admin.GroupVersionKindFor(object)
	must(t, err)
	eventually(t, "cache of objects with consent", func(g gomega.Gomega) {
		seen := &metav1.PartialObjectMetadata{}
		seen.SetGroupVersionKind(gvk)
		err := consented.Get(t.Context(), client.ObjectKeyFromObject(object), seen)
		if object.GetLabels()[v1alpha1.LabelPropagate] != v1alpha1.PropagateYes {
			g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
			g.Expect(err).To(gomega.HaveOccurred())
			return
		}
		g.Expect(err).To(gomega.Succeed())
		g.Expect(seen.ResourceVersion).To(gomega.Equal(object.GetResourceVersion()))
	})
}

// place submits a job and places it on the worker, with the Secrets that its pods name.
func (s *scene) place(t *testing.T, name string, secrets ...string) *v1alpha1.Dispatch {
	t.Helper()
	job := s.Submit(t, name)
	d := s.Place(t, job, workerName, func(d *v1alpha1.Dispatch) {
		for _, secret := range secrets {
			d.Spec.Dependencies = append(d.Spec.Dependencies, v1alpha1.Dependency{Kind: "Secret", Name: secret})
		}
	})
	s.settleDispatch(t, d)
	return d
}

// settleDispatch waits until the hub's cache shows a Dispatch as it is on the API server, or that it is gone.
func (s *scene) settleDispatch(t *testing.T, d *v1alpha1.Dispatch) {
	t.Helper()
	eventually(t, "Dispatch in the cache", func(g gomega.Gomega) {
		seen, live := &v1alpha1.Dispatch{}, &v1alpha1.Dispatch{}
		g.Expect(client.IgnoreNotFound(s.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(d), live))).To(gomega.Succeed())
		g.Expect(client.IgnoreNotFound(s.Cached.Get(t.Context(), client.ObjectKeyFromObject(d), seen))).To(gomega.Succeed())
		g.Expect(seen.ResourceVersion).To(gomega.Equal(live.ResourceVersion))
	})
}

// end deletes the Dispatch of a job.
func (s *scene) end(t *testing.T, d *v1alpha1.Dispatch) {
	t.Helper()
	must(t, client.IgnoreNotFound(s.Hub.Admin.Delete(t.Context(), d)))
	s.settleDispatch(t, d)
}

// bring brings what a Dispatch names, which must not fail.
func (s *scene) bring(t *testing.T, d *v1alpha1.Dispatch) []string {
	t.Helper()
	left, err := s.reconciler.Bring(t.Context(), d)
	must(t, err)
	return left
}

// reconcile reconciles the scene's namespace, which must not fail.
func (s *scene) reconcile(t *testing.T) reconcile.Result {
	t.Helper()
	result, err := s.reconciler.Reconcile(t.Context(), s.request())
	must(t, err)
	return result
}

// request has the scene's namespace reconciled.
func (s *scene) request() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: s.Namespace}}
}

// there is the Secret on the worker, nil if there is none.
func (s *scene) there(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	err := s.worker.Admin.Get(t.Context(), s.Key(name), secret)
	must(t, client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return secret
}

// expectToken checks what the worker has of a Secret: this token, or nothing if it is empty.
func (s *scene) expectToken(t *testing.T, name, token string) {
	t.Helper()
	got := ""
	if secret := s.there(t, name); secret != nil {
		got = string(secret.Data["token"])
	}
	check.Equal(t, token, got, "the token of Secret %q on the worker", name)
}

// recorded are the names of the objects of the scene that are on record.
func (s *scene) recorded(t *testing.T) string {
	t.Helper()
	var names []string
	for _, o := range s.WorkerCluster(t, workerName).Status.Dependencies {
		if o.Namespace == s.Namespace {
			names = append(names, o.String())
		}
	}
	return strings.Join(names, ",")
}

// expectRecord checks which objects of the scene are on record.
func (s *scene) expectRecord(t *testing.T, want string) {
	t.Helper()
	check.Equal(t, want, s.recorded(t), "the record")
}

// copyOf creates the copy of a job on the worker, as the mirror does, and waits for the cache.
func (s *scene) copyOf(t *testing.T, name string, secrets string) *trainer.TrainJob {
	t.Helper()
	copy := stage.NewTrainJob(s.Namespace, name)
	copy.Labels = map[string]string{v1alpha1.LabelHub: stage.HubID, v1alpha1.LabelOriginUID: "uid-of-" + name}
	copy.Annotations = map[string]string{v1alpha1.AnnotationDependencies: secrets}
	s.worker.Create(t, copy)
	s.worker.SettleCopy(t, s.Key(name))
	return copy
}

// settleNamespace waits until the worker's cache shows a namespace as it is.
func (s *scene) settleNamespace(t *testing.T, namespace *corev1.Namespace) {
	t.Helper()
	eventually(t, "namespace in the cache", func(g gomega.Gomega) {
		seen := &metav1.PartialObjectMetadata{}
		seen.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		g.Expect(s.worker.Connection.Cache().Get(t.Context(), client.ObjectKeyFromObject(namespace), seen)).To(gomega.Succeed())
		g.Expect(seen.ResourceVersion).To(gomega.Equal(namespace.ResourceVersion))
	})
}
