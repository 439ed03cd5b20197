// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

// Runtimes besides upstream's torch-distributed. In all of them, a failed pod fails its Job.
const (
	// brittleRuntime has no failure policy: the first failure ends the job.
	brittleRuntime = "brittle"
	// restartsRuntime restarts the JobSet twice.
	restartsRuntime = "restarts"
	// ttlRuntime has JobSets that are deleted when they have ended.
	ttlRuntime = "ttl"
	// stepsRuntime loads a dataset before it trains.
	stepsRuntime = "steps"
)

// lifeRuntimes are templates, because most of a runtime is its one replicated job.
const lifeRuntimes = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: brittle, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template: {spec: {replicatedJobs: [NODE]}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: restarts, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template: {spec: {failurePolicy: {maxRestarts: 2}, replicatedJobs: [NODE]}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: ttl, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template: {spec: {ttlSecondsAfterFinished: 0, replicatedJobs: [NODE]}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: steps, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: dataset-initializer
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer}}
          spec:
            backoffLimit: 0
            template: {spec: {containers: [{name: dataset-initializer, image: example.com/initializer:1}]}}
      - {dependsOn: [{name: dataset-initializer, status: Complete}], NODE_FIELDS}
`

const nodeFields = `name: node, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, ` +
	`spec: {backoffLimit: 0, template: {spec: {containers: [{name: node, image: example.com/trainer:1}]}}}}`

// poolLabel marks the nodes of a lifeEnvironment: half of them are in pool a, half in pool b.
const poolLabel = "example.com/pool"

// lifeEnvironment is a whole cluster: the controller, the Job controllers, JobSet's controller and webhooks, a
// scheduler, and nodes that kwok simulates. TrainJobs have no webhook here. The controller runs in this process. A test
// can stop and start it, and the environment records its requests.
type lifeEnvironment struct {
	*environment // its clock is nil: the controller uses the real clock
	watcher      client.WithWatch
	requests     *requestLog

	mu   sync.Mutex
	stop func() error // under mu; nil: the controller does not run
}

var sharedLife = stage.ShareWith(startLife)

// lifeEnv returns the shared cluster. The first test that asks for it starts it.
func lifeEnv(t *testing.T) *lifeEnvironment {
	t.Helper()
	return sharedLife.Get(t)
}

func startLife(ctx context.Context, cleanup func(func() error)) (*lifeEnvironment, error) {
	options := clusters.Full("life",
		clusters.NodeShape{Count: 2, NamePrefix: "a", Labels: map[string]string{poolLabel: "a"}},
		clusters.NodeShape{Count: 2, NamePrefix: "b", Labels: map[string]string{poolLabel: "b"}})
	server, err := stage.StartServer(ctx, cleanup, options)
	if err != nil {
		return nil, err
	}
	e := &lifeEnvironment{
		environment: &environment{Client: server.Admin, cluster: server.Cluster}, watcher: server.Admin, requests: &requestLog{},
	}
	cleanup(e.stopController)
	fields := strings.NewReplacer("NODE_FIELDS", nodeFields, "NODE", "{"+nodeFields+"}")
	if err := e.cluster.Apply(ctx, fields.Replace(lifeRuntimes)); err != nil {
		return e, err
	}
	return e, e.startController()
}

// startController starts the controller unless it runs already.
func (e *lifeEnvironment) startController() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop != nil {
		return nil
	}
	scheme := apiruntime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return err
	}
	restConfig := rest.CopyConfig(e.cluster.Config)
	restConfig.Wrap(e.requests.transport)
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:  scheme,
		Cache:   CacheOptions(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		// controller-runtime's own queue can block for ever if it has work when it is shut down. Then the manager waits for
		// its grace period: https://github.com/kubernetes-sigs/controller-runtime/issues/3538
		Controller: config.Controller{UsePriorityQueue: new(false)},
	})
	if err != nil {
		return err
	}
	err = Add(context.Background(), mgr, Options{
		SkipNameValidation: true,
		RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](20*time.Millisecond, time.Second),
	})
	if err != nil {
		return err
	}
	e.requests.started()
	e.stop = stage.Run(mgr)
	return nil
}

// stopController returns when the controller and its last pass have ended.
func (e *lifeEnvironment) stopController() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop == nil {
		return nil
	}
	stop := e.stop
	e.stop = nil
	return stop()
}

func (e *lifeEnvironment) restartController() error {
	return errors.Join(e.stopController(), e.startController())
}

// stopControllerFor stops the controller until the end of the test, or until the returned function is called.
func (e *lifeEnvironment) stopControllerFor(t *testing.T) (start func()) {
	t.Helper()
	if err := e.stopController(); err != nil {
		t.Fatalf("stop controller: %v", err)
	}
	start = func() {
		check.Equal(t, nil, e.startController(), "start controller")
	}
	t.Cleanup(start)
	return start
}

// patchRuntime returns a change of a TrainJob that patches the pods of its trainer.
func patchRuntime(pod *trainer.PodTemplatePatch) func(*trainer.TrainJob) {
	return func(j *trainer.TrainJob) {
		j.Spec.RuntimePatches = []trainer.RuntimePatch{{
			Manager: "example.com/test",
			TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{Spec: &trainer.JobSetSpecPatch{
				ReplicatedJobs: []trainer.ReplicatedJobPatch{{
					Name:     "node",
					Template: &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: pod}},
				}},
			}}},
		}}
	}
}

// pods returns a change that puts annotations (pairs of key and value) on the pods of a job. They say what kwok does.
func pods(annotations ...string) func(*trainer.TrainJob) {
	return patchRuntime(&trainer.PodTemplatePatch{Metadata: annotated(annotations...)})
}

func annotated(pairs ...string) *metav1.ObjectMeta {
	m := &metav1.ObjectMeta{Annotations: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		m.Annotations[pairs[i]] = pairs[i+1]
	}
	return m
}

// poolAffinity has the effect of a node selector for poolLabel, but JobSet does not allow changes of it.
func poolAffinity(pool string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: poolLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{pool}},
		}}},
	}}}
}

func clusterRuntime(name string) func(*trainer.TrainJob) {
	return func(j *trainer.TrainJob) { j.Spec.RuntimeRef.Name = name }
}

// awaitNote waits for an Event of a job that has the reason and contains the words.
func (e *lifeEnvironment) awaitNote(t *testing.T, j *trainer.TrainJob, reason string, words ...string) {
	t.Helper()
	eventually(t, "Event "+reason+" of "+j.Name, func(g gomega.Gomega) {
		g.Expect(e.events(t, j)).To(gomega.ContainElement(hasAll(reason+": ", words)))
	})
}

func hasAll(first string, words []string) gomega.OmegaMatcher {
	matchers := []gomega.OmegaMatcher{gomega.HavePrefix(first)}
	for _, word := range words {
		matchers = append(matchers, gomega.ContainSubstring(word))
	}
	return gomega.SatisfyAll(matchers...)
}

// awaitEnd waits until a job has ended with a condition of the given type, and returns the job.
func (e *lifeEnvironment) awaitEnd(t *testing.T, j *trainer.TrainJob, kind string) *trainer.TrainJob {
	t.Helper()
	var got *trainer.TrainJob
	eventually(t, j.Name+" to be "+kind, func(g gomega.Gomega) {
		got = e.get(t, j)
		g.Expect(hasEnded(&got.Status)).To(gomega.BeTrue(), "status: %v", got.Status)
	})
	if end := endOf(&got.Status); end.Type != kind {
		t.Fatalf("%s is %s (%s: %s), want %s", j.Name, end.Type, end.Reason, end.Message, kind)
	}
	return got
}

// podsOf lists the pods of the JobSet with the job's name.
func (e *lifeEnvironment) podsOf(t *testing.T, j *trainer.TrainJob) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	err := e.List(t.Context(), &list, client.InNamespace(j.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: j.Name})
	check.Must(t, err)
	return list.Items
}

// awaitRunning waits until exactly this number of the job's pods runs, and returns the pods.
func (e *lifeEnvironment) awaitRunning(t *testing.T, j *trainer.TrainJob, count int) []corev1.Pod {
	t.Helper()
	var running []corev1.Pod
	eventually(t, fmt.Sprintf("%d pods of %s to run", count, j.Name), func(g gomega.Gomega) {
		running = nil
		for _, pod := range e.podsOf(t, j) {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				running = append(running, pod)
			}
		}
		g.Expect(running).To(gomega.HaveLen(count))
	})
	return running
}

// awaitGone waits until no object has this name, kind and UID.
func (e *lifeEnvironment) awaitGone(t *testing.T, object client.Object) {
	t.Helper()
	eventually(t, fmt.Sprintf("%T %s to go", object, object.GetName()), func(g gomega.Gomega) {
		got := object.DeepCopyObject().(client.Object)
		err := e.Get(t.Context(), client.ObjectKeyFromObject(object), got)
		g.Expect(apierrors.IsNotFound(err) || err == nil && got.GetUID() != object.GetUID()).To(gomega.BeTrue())
	})
}

// jobSetsOf counts the JobSets that a TrainJob has had.
func jobSetsOf(h *history, uid types.UID) int {
	count := 0
	for _, c := range h.all() {
		if js, ok := c.object.(*jobsetv1alpha2.JobSet); ok && c.isNew && ownerOf(js) == uid {
			count++
		}
	}
	return count
}
