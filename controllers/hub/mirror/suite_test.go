// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/mirror"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/laws"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	workerName = v1alpha1.ClusterName("worker")
	jobName    = "job"
	patience   = check.Patience
)

var must, eventually, read = check.Must, check.Eventually, stage.ReadTrainJob

var shared = stage.Share(func(ctx context.Context, s *stage.Stage) error {
	return errors.Join(s.Hub.InstallRuntime(ctx), s.Workers[0].InstallRuntime(ctx), s.Connect(remote.Options{Scheme: s.Scheme}))
}, string(workerName))

// older has a worker with the CRDs of Kubeflow Trainer 2.1.
var older = stage.ShareWith(func(ctx context.Context, cleanup func(func() error)) (*stage.Stage, error) {
	crds, err := clusters.ReleaseCRDs(ctx, clusters.Trainer21)
	if err != nil {
		return nil, err
	}
	s, err := stage.StartWith(ctx, func(o *clusters.Options) {
		if o.Name != "hub" {
			o.CRDs = append([]string{crds}, o.CRDs[1:]...)
		}
	}, string(workerName))
	if err != nil {
		return nil, err
	}
	cleanup(s.Stop)
	return s, errors.Join(s.Hub.InstallRuntime(ctx), s.Workers[0].InstallRuntime(ctx), s.Connect(remote.Options{Scheme: s.Scheme}))
})

func TestMain(m *testing.M) { stage.Main(m, shared, older) }

// scene is a job that is placed on the worker, and the mirror that a test calls.
type scene struct {
	*stage.Scene
	key    client.ObjectKey
	worker *stage.Server
	// secretive is true if the worker forbids the connection to read JobSets.
	secretive bool
	// challenge that was answered last. Empty: the worker's agent does not answer.
	challenge string
	// options of the mirror. What a test changes holds from the next restart on.
	options mirror.Options
	mirror  reconcile.Reconciler
}

// setting is what is special about a scene.
type setting struct {
	// spec is added to the spec of the job.
	spec map[string]any
	// labels and annotations of the job.
	labels, annotations map[string]string
	// failover of the Dispatch.
	failover v1alpha1.Failover
	// hubOnly: the worker does not have the job's namespace.
	hubOnly bool
	// older: the worker has the CRDs of Kubeflow Trainer 2.1.
	older bool
}

// newScene creates a job on the hub and its Dispatch. The worker has the runtime.
func newScene(t *testing.T, with setting) *scene {
	t.Helper()
	stages := shared
	if with.older {
		stages = older
	}
	all, on := stages.Get(t), []*stage.Server(nil)
	if with.hubOnly {
		on = append(on, all.Hub)
	}
	s := &scene{Scene: all.Scene(t, on...), worker: all.Workers[0]}
	s.key = s.Key(jobName)
	job := s.Submit(t, jobName, func(job *trainer.TrainJob) {
		job.Labels, job.Annotations, job.Spec.Trainer = with.labels, with.annotations, nil
		spec, err := json.Marshal(with.spec)
		must(t, err)
		must(t, json.Unmarshal(spec, &job.Spec))
	})
	s.Place(t, job, workerName, func(d *v1alpha1.Dispatch) {
		d.Finalizers, d.Spec.Failover = []string{v1alpha1.FinalizerCopy}, with.failover
	})
	s.options = mirror.Options{
		Cluster: workerName, HubID: stage.HubID, Hub: s.Hub.Admin, HubReader: s.Hub.Admin, Worker: s.worker.Connection,
		Policy:   func(context.Context, *unstructured.Unstructured) (*v1alpha1.DispatchPolicy, error) { return nil, nil },
		Recorder: s.Events, Clock: s.Clock,
		Lease: func() (string, bool) { return s.challenge, s.challenge != "" },
	}
	s.restart()
	return s
}

// restart is a new process, which remembers nothing.
func (s *scene) restart() { s.mirror = mirror.NewReconciler(s.options) }

// reconcile calls the mirror, which must not fail, and waits until the worker's cache shows what it did there.
func (s *scene) reconcile(t *testing.T) reconcile.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	before := s.dispatch(t)
	result, err := s.mirror.Reconcile(ctx, reconcile.Request{NamespacedName: s.key})
	must(t, err)
	check.Equal(t, nil, laws.Check(before, s.dispatch(t)), "a write that no table has")
	s.settle(t)
	return result
}

// settle waits until the worker's cache shows the copy as it is now.
func (s *scene) settle(t *testing.T) {
	t.Helper()
	s.worker.SettleCopy(t, s.key)
	s.settleJobSet(t)
}

// settleJobSet waits until the worker's cache shows the copy's JobSet as it is now, unless the worker does not let it
// be read.
func (s *scene) settleJobSet(t *testing.T) {
	t.Helper()
	eventually(t, "worker's cache of JobSets", func(g gomega.Gomega) {
		cached, live := newJobSet(), newJobSet()
		err := s.worker.Connection.Cache().Get(t.Context(), s.key, cached)
		if client.IgnoreNotFound(err) != nil && s.secretive {
			return
		}
		g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
		g.Expect(client.IgnoreNotFound(s.worker.Admin.Get(t.Context(), s.key, live))).To(gomega.Succeed())
		g.Expect(cached.GetResourceVersion()).To(gomega.Equal(live.GetResourceVersion()))
	})
}

// newJobSet returns an empty JobSet, for a client to read into.
func newJobSet() *unstructured.Unstructured {
	jobSet := &unstructured.Unstructured{}
	jobSet.SetGroupVersionKind(jobsetv1alpha2.SchemeGroupVersion.WithKind("JobSet"))
	return jobSet
}

// job, dispatch and copy are what is on the API servers now, nil if nothing is.
func (s *scene) job(t *testing.T) *unstructured.Unstructured  { return read(t, s.Hub.Admin, s.key) }
func (s *scene) copy(t *testing.T) *unstructured.Unstructured { return read(t, s.worker.Admin, s.key) }

func (s *scene) dispatch(t *testing.T) *v1alpha1.Dispatch {
	t.Helper()
	return s.Dispatch(t, jobName)
}

// stuck returns a client that always reads what is on the API server now, like a cache that lags. Its writes take
// effect at once. more are kinds that it can read beside the kinds that every job needs.
func (s *scene) stuck(t *testing.T, server *clusters.Cluster, more ...client.Object) client.Client {
	t.Helper()
	kinds := append([]client.Object{
		trainjobs.New(), newJobSet(), &corev1.Pod{},
		&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}},
		&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{
			APIVersion: trainer.SchemeGroupVersion.String(), Kind: trainer.ClusterTrainingRuntimeKind,
		}},
	}, more...)
	if server == s.Hub.Cluster {
		kinds = append(kinds, &v1alpha1.Dispatch{})
	}
	ctx, cancel := context.WithCancel(t.Context())
	reader, err := cache.New(server.Config, cache.Options{Scheme: s.Scheme})
	must(t, err)
	for _, kind := range kinds {
		_, err := reader.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		must(t, err)
	}
	ended := make(chan error)
	go func() { ended <- reader.Start(ctx) }()
	if !reader.WaitForCacheSync(ctx) {
		t.Fatal("the cache did not fill")
	}
	cancel()
	must(t, <-ended)
	c, err := client.New(server.Config, client.Options{Scheme: s.Scheme, Cache: &client.CacheOptions{Reader: reader, Unstructured: true}})
	must(t, err)
	return c
}

// stuckWorker is a connection whose cache lags.
type stuckWorker struct {
	cached client.Client
	live   client.Reader
}

func (w stuckWorker) Client() (client.Client, error)    { return w.cached, nil }
func (w stuckWorker) APIReader() (client.Reader, error) { return w.live, nil }
