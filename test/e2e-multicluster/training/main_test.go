// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package training tests a real distributed training on clusters of kind: real kubelets, containers and networks, and
// our images as Deployments. Worker "east" has two nodes, worker "west" has one. All nodes of workers have one folder
// of this machine for checkpoints, which stands for storage that both workers reach.
package training

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	east = "east"
	west = "west"

	trainImage = "trainyard/toy-train:latest"
	// onNodes is the path of the checkpoints in test/training/toy-train.yaml.
	onNodes = "/var/lib/toy-train"
)

var (
	y = yard.Suite{
		Timeout: 10 * time.Minute, // for one step of a test on a busy machine; a training that nobody disturbs takes a minute
		Poll:    250 * time.Millisecond,
	}
	checkpoints string
)

func TestMain(m *testing.M) {
	if !clusters.OnKind() {
		fmt.Println("skipped: a real training needs TRAINYARD_CLUSTERS=kind (make test-kind)")
		return
	}
	yard.Main(m, start)
}

func start(ctx context.Context) (stop func() error, err error) {
	if checkpoints, err = os.MkdirTemp("", "trainyard-checkpoints-"); err != nil {
		return nil, err
	}
	stop = func() error { return os.RemoveAll(checkpoints) }
	workers := []yard.Worker{{Name: east}, {Name: west}}
	for i := range workers {
		workers[i].Labels = map[string]string{"region": workers[i].Name}
		workers[i].Failover.FenceAfter = &metav1.Duration{Duration: time.Minute}
	}
	y.Yard, err = yard.Start(ctx, yard.Options{
		Dir:         os.Getenv("E2E_DIR"),
		Workers:     workers,
		KindWorkers: map[string]int{east: 1},
		KindMounts:  map[string]string{checkpoints: onNodes},
		KindImages:  []string{trainImage},
		Progress:    yard.Print, Gateway: true,
	})
	if err != nil {
		return stop, err
	}
	stop = func() error { return errors.Join(y.Stop(), os.RemoveAll(checkpoints)) }
	y.Hub, y.Workers, err = y.Clients()
	return stop, err
}

// placedOn waits until the copy of the job is on the worker.
func placedOn(t *testing.T, job *trainer.TrainJob, worker string) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(string(y.DispatchOf(g, job).Spec.Cluster)).To(gomega.Equal(worker))
	})
}

// The settings of toy-train in this test: a step takes at least 100 ms, so a training takes at least a minute.
const allSteps = 600

var (
	checkpointLine = regexp.MustCompile(`rank=0 .*step=(\d+) checkpoint`)
	continueLine   = regexp.MustCompile(`step=(\d+) continues from the checkpoint`)
	doneLine       = regexp.MustCompile(`rank=(\d+) world=(\d+) step=(\d+) done .*weights=(sha256:[0-9a-f]+)`)
)

// A training ends on two nodes. The same training survives a node that dies, is drained to the other worker, and ends
// there with the same weights: it went on from its checkpoints, and lost no step.
func TestTraining(t *testing.T) {
	installRuntime(t)
	y.Cordon(t, west, true)
	undisturbed := submit(t, metav1.NamespaceDefault, "undisturbed")
	placedOn(t, undisturbed, east)
	if nodes := nodesOf(t, east, undisturbed); len(nodes) != 2 {
		t.Errorf("the pods run on %q, want two nodes", nodes)
	}
	want := weights(t, east, undisturbed)

	disturbed := submit(t, metav1.NamespaceDefault, "disturbed")
	placedOn(t, disturbed, east)
	reachesCheckpoint(t, east, disturbed, 60)
	killed := killNode(t, disturbed)
	resumed := continues(t, east, disturbed, 60)
	t.Logf("after the loss of node %s the training went on from step %d", killed, resumed)
	reachesCheckpoint(t, east, disturbed, resumed+40)

	y.Cordon(t, west, false)
	t.Logf("kubectl trainyard drain %s:\n%s", east, plugin(t, y.Yard.Hub, "drain", east, "--wait", "--timeout", y.Timeout.String()))
	placedOn(t, disturbed, west)
	moved := continues(t, west, disturbed, resumed+40)
	t.Logf("on %s the training went on from step %d", west, moved)
	if got := weights(t, west, disturbed); got != want {
		t.Errorf("the disturbed training ended with weights %s, the undisturbed with %s", got, want)
	}
}

// installRuntime installs the runtime of test/training/toy-train.yaml on the hub.
func installRuntime(t *testing.T) {
	t.Helper()
	for _, object := range sample(t) {
		if object.GetKind() == trainer.ClusterTrainingRuntimeKind {
			check.Must(t, y.Yard.Hub.ApplyObjects(t.Context(), object))
		}
	}
}

func sample(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	module, err := clusters.ModuleDir(t.Context(), "github.com/trainyard/trainyard")
	check.Must(t, err)
	objects, err := clusters.ReadObjects(filepath.Join(module, "test/training/toy-train.yaml"))
	check.Must(t, err)
	return objects
}

// sampleJob returns the TrainJob of the sample.
func sampleJob(t *testing.T) *trainer.TrainJob {
	t.Helper()
	job := &trainer.TrainJob{}
	for _, object := range sample(t) {
		if object.GetKind() == trainer.TrainJobKind {
			check.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, job))
		}
	}
	if ptr.Deref(job.Spec.Trainer.NumNodes, 0) != 2 {
		t.Fatalf("the sample has %d nodes, want 2", ptr.Deref(job.Spec.Trainer.NumNodes, 0))
	}
	return job
}

// submit creates the TrainJob of the sample in a namespace, under another name.
func submit(t *testing.T, namespace, name string) *trainer.TrainJob {
	t.Helper()
	job := sampleJob(t)
	job.Namespace, job.Name = namespace, name
	if err := y.Hub.Create(t.Context(), job); err != nil {
		t.Fatalf("create TrainJob: %v", err)
	}
	return job
}

// pods returns the running pods of the job on a worker.
func pods(ctx context.Context, g gomega.Gomega, worker string, job *trainer.TrainJob) (running []corev1.Pod) {
	var list corev1.PodList
	g.Expect(y.Workers[worker].List(ctx, &list, client.InNamespace(job.Namespace),
		client.MatchingLabels{"jobset.sigs.k8s.io/jobset-name": job.Name})).To(gomega.Succeed())
	for _, pod := range list.Items {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			running = append(running, pod)
		}
	}
	return running
}

// nodesOf waits until both pods of the job run, and returns the names of their nodes.
func nodesOf(t *testing.T, worker string, job *trainer.TrainJob) (nodes []string) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		running := pods(t.Context(), g, worker, job)
		g.Expect(running).To(gomega.HaveLen(2))
		nodes = nil
		for _, pod := range running {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	})
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// killNode kills a node of the worker east on which the job runs, and deletes the node object, as the node controller
// of a cloud does when a machine is gone. Without that, the pods of the node would stay, terminating.
func killNode(t *testing.T, job *trainer.TrainJob) string {
	t.Helper()
	nodes := slices.DeleteFunc(nodesOf(t, east, job), func(node string) bool { return strings.HasSuffix(node, "control-plane") })
	if len(nodes) != 1 {
		t.Fatalf("the job runs on nodes %q beside the control plane's, want one", nodes)
	}
	name := nodes[0]
	check.Must(t, y.Yard.Workers[east].KillNode(t.Context(), name))
	node := &corev1.Node{}
	node.Name = name
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(y.Workers[east].Get(t.Context(), client.ObjectKeyFromObject(node), node)).To(gomega.Succeed())
		ready := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
		})
		g.Expect(ready).NotTo(gomega.Equal(-1), "the node is still Ready")
	})
	check.Must(t, y.Workers[east].Delete(t.Context(), node))
	return name
}

// reachesCheckpoint waits until rank 0 has written the checkpoint of a step, or a later one.
func reachesCheckpoint(t *testing.T, worker string, job *trainer.TrainJob, step int) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(last(logs(t, g, worker, job), checkpointLine)).To(gomega.BeNumerically(">=", step))
	})
}

// continues waits until the latest try of the job has gone on from a checkpoint of the step or a later one.
func continues(t *testing.T, worker string, job *trainer.TrainJob, step int) (from int) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		from = last(logs(t, g, worker, job), continueLine)
		g.Expect(from).To(gomega.BeNumerically(">=", step))
	})
	return from
}

// weights waits until the job is complete, and returns the checksum of its weights, which both ranks have printed.
func weights(t *testing.T, worker string, job *trainer.TrainJob) string {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), job)).To(gomega.Succeed())
		g.Expect(meta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobComplete)).To(gomega.BeTrue(),
			"conditions: %v", job.Status.Conditions)
	})
	text := plugin(t, y.Yard.Workers[worker], "logs", job.Name, "--all-nodes")
	done := doneLine.FindAllStringSubmatch(text, -1)
	if len(done) != 2 || done[0][1] == done[1][1] || done[0][3] != strconv.Itoa(allSteps) || done[0][4] != done[1][4] {
		t.Fatalf("the log does not say that two ranks have made %d steps and have the same weights:\n%s", allSteps, text)
	}
	return done[0][4]
}

// last returns the number in the last line of a log that matches, or -1.
func last(text string, line *regexp.Regexp) int {
	found := line.FindAllStringSubmatch(text, -1)
	if len(found) == 0 {
		return -1
	}
	number, err := strconv.Atoi(found[len(found)-1][1])
	if err != nil {
		return -1
	}
	return number
}

// logs returns the log of rank 0, by the plugin. The log is on the worker.
func logs(t *testing.T, g gomega.Gomega, worker string, job *trainer.TrainJob) string {
	t.Helper()
	text, err := run(t.Context(), y.Yard.Workers[worker], "logs", job.Name)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	return text
}

func plugin(t *testing.T, cluster *clusters.Cluster, args ...string) string {
	t.Helper()
	text, err := run(t.Context(), cluster, args...)
	check.Must(t, err)
	return text
}

// run runs the plugin against a cluster and returns what it prints.
func run(ctx context.Context, cluster *clusters.Cluster, args ...string) (string, error) {
	module, err := clusters.ModuleDir(ctx, "github.com/trainyard/trainyard")
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, filepath.Join(module, "bin", "kubectl-trainyard"),
		append(args, "--kubeconfig", cluster.KubeconfigPath)...)
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("kubectl trainyard %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(output), nil
}
