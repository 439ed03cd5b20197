// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

const (
	gpu = "nvidia.com/gpu"
	// waitLimit is for what takes half a minute on an idle machine: three crashes, or a node that counts as lost.
	waitLimit = 150 * time.Second
)

// TestOnACluster checks what the real scheduler, Job controller and node lifecycle controller write. The pods come
// through a cache with this package's selector, transform and index.
func TestOnACluster(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	cluster, err := clusters.Start(t.Context(), trainingCluster())
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, cluster.Stop()) })
	w := newPodDiagnoser(t, cluster)

	running := w.create(jobSet("running", 2, podTemplate(8, map[string]string{clusters.RunForAnnotation: "forever"})))
	large := w.create(jobSet("large", 2, podTemplate(9, nil)))
	crashing := w.create(jobSet("crashing", 1, podTemplate(0, map[string]string{
		clusters.RunForAnnotation: "10ms", clusters.FailAnnotation: "ValueError: loss is NaN",
	})))

	w.await(large, Unschedulable, "^pod large-node-0-0-[a-z0-9]+ \\(trainer 0\\) and others: no node for it: Insufficient nvidia.com/gpu$")
	w.awaitReady(running, 2)
	w.readWarnings()
	w.await(crashing, CrashLoop, "^pod crashing-node-0-0-[a-z0-9]+ \\(trainer 0\\) on node gpu-[01]: "+
		"container \"main\" ended with exit code 1: ValueError: loss is NaN$")
	trouble, err := w.diagnose(running)
	check.Must(t, err)
	check.Diff(t, (*Trouble)(nil), trouble, "a job whose pods run")

	check.Must(t, cluster.Process("kwok").Signal(syscall.SIGSTOP))
	w.await(running, NodeLost, "^pod running-node-0-0-[a-z0-9]+ \\(trainer 0\\) on node gpu-[01] and others: the node is not ready$")
}

// readWarnings checks what Events of the real Job controller say, and of a kubelet that cannot mount a volume.
func (w *podDiagnoser) readWarnings() {
	w.t.Helper()
	ctx := w.t.Context()
	poor := metav1.ObjectMeta{Namespace: "poor", Name: "no-pods"}
	quota := &corev1.ResourceQuota{ObjectMeta: poor, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")},
	}}
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: poor.Namespace}}, quota} {
		check.Must(w.t, w.admin.Create(ctx, object))
	}
	g := gomega.NewWithT(w.t)
	g.Eventually(func(g gomega.Gomega) {
		g.Expect(w.admin.Get(ctx, client.ObjectKeyFromObject(quota), quota)).To(gomega.Succeed())
		g.Expect(quota.Status.Hard).NotTo(gomega.BeEmpty())
	}).WithTimeout(waitLimit).Should(gomega.Succeed())
	refused := jobSet("refused", 1, podTemplate(0, nil))
	refused.Namespace = poor.Namespace
	check.Must(w.t, w.admin.Create(ctx, refused))
	g.Eventually(func() (string, error) {
		if err := w.admin.Get(ctx, client.ObjectKeyFromObject(refused), refused); err != nil {
			return "", err
		}
		return WarningOf(ctx, w.admin, refused, nil)
	}).WithTimeout(waitLimit).
		Should(gomega.Equal("FailedCreate: exceeded quota: no-pods, requested: pods=1, used: pods=0, limited: pods=0"))

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: poor.Namespace, Name: "refused-node-0-0-x"},
		Spec:       corev1.PodSpec{NodeName: "gpu-0", Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	of := func(pod *corev1.Pod) (string, error) { return WarningOf(ctx, w.admin, refused, []*corev1.Pod{pod}) }
	if words, err := of(pod); words != "" || err != nil {
		w.t.Errorf("a pod without Events: %q, %v", words, err)
	}
	now := metav1.Now()
	for name, event := range map[string]corev1.Event{
		"earlier": {Reason: "FailedScheduling", Type: corev1.EventTypeWarning, LastTimestamp: metav1.NewTime(now.Add(-time.Second))},
		"normal":  {Reason: "Pulled", Type: corev1.EventTypeNormal, LastTimestamp: metav1.NewTime(now.Add(time.Second))},
		"old":     {Reason: "Old", Type: corev1.EventTypeWarning, LastTimestamp: metav1.NewTime(refused.CreationTimestamp.Add(-time.Hour))},
		"newest": {
			Reason: "FailedMount", Type: corev1.EventTypeWarning, LastTimestamp: now,
			Message: `MountVolume.SetUp failed for volume "data" of pod 0123abcd-0000-4000-8000-0123456789ab : configmap "llm" not found`,
		},
	} {
		event.ObjectMeta = metav1.ObjectMeta{Namespace: poor.Namespace, Name: "x." + name}
		event.InvolvedObject = corev1.ObjectReference{Kind: "Pod", Namespace: poor.Namespace, Name: pod.Name}
		check.Must(w.t, w.admin.Create(ctx, &event))
	}
	want := `FailedMount: MountVolume.SetUp failed for volume "data" of pod ... : configmap "llm" not found`
	if words, err := of(pod); words != want || err != nil {
		w.t.Errorf("got %q, %v, want %q", words, err, want)
	}
	pod.Status.Phase = corev1.PodSucceeded
	if words, err := of(pod); words != "" || err != nil {
		w.t.Errorf("a pod that waits for nothing: %q, %v", words, err)
	}
}

// trainingCluster has two nodes of 8 GPUs. A node counts as lost when kwok has missed two renewals of its lease.
func trainingCluster() clusters.Options {
	o := clusters.Full("health", clusters.NodeShape{
		Count: 2, NamePrefix: "gpu", Capacity: corev1.ResourceList{gpu: resource.MustParse("8")},
	})
	o.ControllerManagerArgs = []string{"--node-monitor-grace-period=22s"}
	return o
}

func podTemplate(gpus int64, annotations map[string]string) corev1.PodTemplateSpec {
	limits := corev1.ResourceList{}
	if gpus > 0 {
		limits[gpu] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "example.com/train:1", Resources: corev1.ResourceRequirements{Limits: limits}}},
		},
	}
}

func jobSet(name string, nodes int32, template corev1.PodTemplateSpec) *jobsetv1alpha2.JobSet {
	return &jobsetv1alpha2.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{{
			Name: "node", Replicas: 1,
			Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
				Parallelism: &nodes, Completions: &nodes, BackoffLimit: new(int32(20)), Template: template,
			}},
		}}},
	}
}

// podDiagnoser diagnoses what a cache of pods shows, as if the jobs had begun an hour ago.
type podDiagnoser struct {
	t     *testing.T
	admin client.Client
	cache cache.Cache
	since time.Time
}

func newPodDiagnoser(t *testing.T, cluster *clusters.Cluster) *podDiagnoser {
	t.Helper()
	scheme := runtime.NewScheme()
	check.Must(t, errors.Join(clientgoscheme.AddToScheme(scheme), jobsetv1alpha2.AddToScheme(scheme)))
	admin, err := client.New(cluster.Config, client.Options{Scheme: scheme})
	check.Must(t, err)
	transform := func(in any) (any, error) {
		if pod, ok := in.(*corev1.Pod); ok {
			Strip(pod)
		}
		return in, nil
	}
	pods, err := cache.New(cluster.Config, cache.Options{Scheme: scheme, ByObject: map[client.Object]cache.ByObject{
		&corev1.Pod{}: {Label: Selector(), Transform: transform},
	}})
	check.Must(t, err)
	check.Must(t, pods.IndexField(t.Context(), &corev1.Pod{}, JobSetIndex, IndexByJobSet))
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- pods.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		check.Must(t, <-stopped)
	})
	return &podDiagnoser{t: t, admin: admin, cache: pods, since: time.Now()}
}

func (w *podDiagnoser) create(js *jobsetv1alpha2.JobSet) *jobsetv1alpha2.JobSet {
	w.t.Helper()
	check.Must(w.t, w.admin.Create(w.t.Context(), js))
	return js
}

func (w *podDiagnoser) diagnose(js *jobsetv1alpha2.JobSet) (*Trouble, error) {
	pods, err := List(w.t.Context(), w.cache, js)
	if err != nil {
		return nil, err
	}
	trouble, _ := Diagnose(Input{Since: w.since, Pods: pods}, Limits{Unschedulable: time.Minute, CrashLoops: 3}, w.since.Add(time.Hour))
	return trouble, nil
}

// await waits until a job has this trouble.
func (w *podDiagnoser) await(js *jobsetv1alpha2.JobSet, reason, message string) {
	w.t.Helper()
	start := time.Now()
	gomega.NewWithT(w.t).Eventually(func() (*Trouble, error) { return w.diagnose(js) }, waitLimit, 50*time.Millisecond).Should(
		gomega.HaveValue(gomega.And(
			gomega.HaveField("Reason", reason), gomega.HaveField("Message", gomega.MatchRegexp(message)),
		)), "job %s", js.Name)
	w.t.Logf("%s had %s after %s", js.Name, reason, time.Since(start).Round(time.Second))
}

// awaitReady waits until the cache has this number of ready pods of a JobSet.
func (w *podDiagnoser) awaitReady(js *jobsetv1alpha2.JobSet, want int) {
	w.t.Helper()
	gomega.NewWithT(w.t).Eventually(func(g gomega.Gomega) {
		all, err := List(w.t.Context(), w.cache, js)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		ready := 0
		for _, pod := range all {
			if is(pod, corev1.PodReady, corev1.ConditionTrue) {
				ready++
			}
		}
		g.Expect(ready).To(gomega.Equal(want))
	}, waitLimit, 50*time.Millisecond).Should(gomega.Succeed())
	other := js.DeepCopy()
	other.UID = "another"
	if namesakes, err := List(w.t.Context(), w.cache, other); err != nil || len(namesakes) > 0 {
		w.t.Errorf("the pods of a namesake: %d, %v; want none", len(namesakes), err)
	}
}
