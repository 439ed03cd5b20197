// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/commands"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	waitLimit = 60 * time.Second
	tick      = 50 * time.Millisecond
)

var (
	trainJobs  = schema.GroupVersionResource{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"}
	jobSets    = schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}
	dispatches = schema.GroupVersionResource{Group: "trainyard.dev", Version: "v1alpha1", Resource: "dispatches"}
	workers    = schema.GroupVersionResource{Group: "trainyard.dev", Version: "v1alpha1", Resource: "workerclusters"}
	policies   = schema.GroupVersionResource{Group: "trainyard.dev", Version: "v1alpha1", Resource: "dispatchpolicies"}
)

// server is a cluster and its clients.
type server struct {
	cluster    *clusters.Cluster
	kubernetes kubernetes.Interface
	dynamic    dynamic.Interface
}

// startServer starts a cluster.
func startServer(ctx context.Context, cleanup func(func() error), options clusters.Options, crds ...clusters.ModuleFile) (*server, error) {
	started, err := stage.StartServer(ctx, cleanup, options, crds...)
	if err != nil {
		return nil, err
	}
	s := &server{cluster: started.Cluster}
	if s.kubernetes, err = kubernetes.NewForConfig(s.cluster.Config); err != nil {
		return nil, err
	}
	s.dynamic, err = dynamic.NewForConfig(s.cluster.Config)
	return s, err
}

// world is a cluster with an agent that runs its TrainJobs on simulated nodes. The tests share it.
var world *server

var sharedWorld, sharedFar = stage.ShareWith(startWorld), stage.ShareWith(startFar)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	stage.Main(m, sharedWorld, sharedFar)
}

// setUp starts the world, and returns a namespace for the test.
func setUp(t *testing.T) string {
	t.Helper()
	world = sharedWorld.Get(t)
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := world.kubernetes.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

func startWorld(ctx context.Context, cleanup func(func() error)) (*server, error) {
	ctx = context.WithoutCancel(ctx) // On a busy machine the linker needs more time than clusters may take to start.
	w, err := startServer(ctx, cleanup, clusters.Full("plugin", clusters.NodeShape{Count: 2}), clusters.HubCRDs)
	if err != nil {
		return nil, err
	}
	agent, err := clusters.Build(ctx, "worker-agent")
	if err != nil {
		return nil, err
	}
	if err := w.cluster.ApplyTrainerRuntimes(ctx, "deepspeed_distributed.yaml"); err != nil {
		return nil, err
	}
	if err := w.cluster.Apply(ctx, runtimes, "{apiVersion: v1, kind: Namespace, metadata: {name: kubeflow-system}}"); err != nil {
		return nil, err
	}
	// Nobody starts the agent again: its lease outlives an API server that takes long to start again.
	_, err = w.cluster.Run(ctx, "worker-agent", agent, "--health-probe-bind-address=0", "--metrics-bind-address=0",
		"--kubeconfig="+w.cluster.KubeconfigPath, "--leader-election-lease-duration=5m", "--leader-election-renew-deadline=4m")
	return w, err
}

// runtimes are the runtimes for the tests. They fail with the first pod or container restart, survive them, fit
// nowhere, retry the Job, restart the whole job, or have a step before the trainer.
const runtimes = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: fails}
spec: {mlPolicy: {numNodes: 1}, template: {spec: {replicatedJobs: [{name: node, template: {metadata: {labels:
  {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {backoffLimit: 0, template: {spec:
  {containers: [{name: node, image: node}, {name: aside, image: aside}]}}}}}]}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: patient}
spec: {mlPolicy: {numNodes: 1}, template: {spec: {replicatedJobs: [{name: node, template: {metadata: {labels:
  {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {backoffLimit: 6, template: {spec:
  {containers: [{name: node, image: node}]}}}}}]}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: huge}
spec: {mlPolicy: {numNodes: 1}, template: {spec: {replicatedJobs: [{name: node, template: {metadata: {labels:
  {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {template: {spec:
  {containers: [{name: node, image: node, resources: {requests: {cpu: 1000}}}]}}}}}]}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: retries}
spec: {mlPolicy: {numNodes: 1}, template: {spec: {replicatedJobs: [{name: node, template: {metadata: {labels:
  {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {backoffLimit: 1, template: {spec:
  {containers: [{name: node, image: node}]}}}}}]}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: restarts}
spec: {mlPolicy: {numNodes: 1}, template: {spec: {failurePolicy: {maxRestarts: 1}, replicatedJobs: [{name: node, template: {metadata: {labels:
  {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec:
  {backoffLimit: 0, template: {spec: {containers: [{name: node, image: node}]}}}}}]}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: steps}
spec: {mlPolicy: {numNodes: 1}, template: {spec: {replicatedJobs: [
  {name: dataset-initializer, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer}}, spec: {template:
    {spec: {containers: [{name: dataset-initializer, image: dataset}]}}}}},
  {name: node, dependsOn: [{name: dataset-initializer, status: Complete}], template: {metadata: {labels:
    {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {template: {spec: {containers: [{name: node, image: node}]}}}}}]}}}
`

// job describes a TrainJob.
type job struct {
	name, namespace string
	runtime         string
	nodes           int
	// replicatedJob is the replicated job whose pods have these annotations, "node" if empty.
	replicatedJob string
	annotations   map[string]string
	// spec is added to the spec, in YAML's flow style.
	spec string
}

func (j job) create(t *testing.T) {
	t.Helper()
	var annotations []string
	for key, value := range j.annotations {
		annotations = append(annotations, fmt.Sprintf("%q: %q", key, value))
	}
	replicatedJob := j.replicatedJob
	if replicatedJob == "" {
		replicatedJob = "node"
	}
	manifest := fmt.Sprintf(`
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: %s, namespace: %s}
spec:
  runtimeRef: {name: %s}
  trainer: {numNodes: %d}
  runtimePatches: [{manager: test.trainyard.dev/simulation, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: %s,
    template: {spec: {template: {metadata: {annotations: {%s}}}}}}]}}}}]
  %s
`, j.name, j.namespace, j.runtime, max(j.nodes, 1), replicatedJob, strings.Join(annotations, ", "), j.spec)
	check.Must(t, world.cluster.Apply(t.Context(), manifest))
}

// buffer is written by one goroutine and read by another.
type buffer struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}

// call is a run of the plugin.
type call struct {
	out, err  buffer
	code      chan int
	interrupt context.CancelFunc
}

// start runs the plugin as an admin of the cluster.
func start(t *testing.T, args ...string) *call {
	t.Helper()
	return startTyping(t, strings.NewReader(""), args...)
}

// startTyping is start with typed input.
func startTyping(t *testing.T, typed io.Reader, args ...string) *call {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	c := &call{code: make(chan int, 1), interrupt: cancel}
	args = append([]string{"--kubeconfig", world.cluster.KubeconfigPath}, args...)
	streams := genericiooptions.IOStreams{In: typed, Out: &c.out, ErrOut: &c.err}
	go func() { c.code <- commands.Main(ctx, streams, "kubectl-trainyard", args) }()
	return c
}

// wait returns the exit code.
func (c *call) wait(t *testing.T) int {
	t.Helper()
	select {
	case code := <-c.code:
		return code
	case <-time.After(waitLimit):
		t.Fatalf("the plugin does not end; stdout:\n%s\nstderr:\n%s", &c.out, &c.err)
		return 0
	}
}

// awaitOut waits until standard output is as wanted.
func (c *call) awaitOut(t *testing.T, want string) {
	t.Helper()
	eventually(t, "output "+want, func(g gomega.Gomega) {
		g.Expect(c.out.String()).To(gomega.Equal(want), "stderr:\n%s", c.err.String())
	})
}

func (c *call) awaitErr(t *testing.T, want string) {
	t.Helper()
	eventually(t, "message "+want, func(g gomega.Gomega) { g.Expect(c.err.String()).To(gomega.ContainSubstring(want)) })
}

var eventually = check.Within(waitLimit, tick)

// awaitPods waits until a job has this number of pods in a phase, and returns them by name.
func awaitPods(t *testing.T, j job, phase corev1.PodPhase, count int) []corev1.Pod {
	t.Helper()
	var found []corev1.Pod
	eventually(t, fmt.Sprintf("%d pods of %s to be %s", count, j.name, phase), func(g gomega.Gomega) {
		list, err := world.kubernetes.CoreV1().Pods(j.namespace).List(t.Context(), metav1.ListOptions{
			LabelSelector: "jobset.sigs.k8s.io/jobset-name=" + j.name, FieldSelector: "status.phase=" + string(phase),
		})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(list.Items).To(gomega.HaveLen(count))
		found = list.Items
	})
	return found
}

// awaitEnd waits until a job has a condition.
func awaitEnd(t *testing.T, j job, condition string) {
	t.Helper()
	awaitStatus(t, j, "type:"+condition)
}

// awaitStatus waits until the job's printed status contains a text.
func awaitStatus(t *testing.T, j job, text string) {
	t.Helper()
	eventually(t, j.name+" to have "+text, func(g gomega.Gomega) {
		u, err := world.dynamic.Resource(trainJobs).Namespace(j.namespace).Get(t.Context(), j.name, metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(fmt.Sprint(u.Object["status"])).To(gomega.ContainSubstring(text))
	})
}

func patchPod(t *testing.T, pod *corev1.Pod, patch string, subresources ...string) {
	t.Helper()
	_, err := world.kubernetes.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresources...)
	check.Must(t, err)
}

func patch(t *testing.T, resource schema.GroupVersionResource, namespace, name, patch string, subresources ...string) {
	t.Helper()
	_, err := world.dynamic.Resource(resource).Namespace(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresources...)
	check.Must(t, err)
}
