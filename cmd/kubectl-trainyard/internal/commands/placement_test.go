// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/check"
)

// hubWith makes the world's cluster a hub, with two workers whose names begin with the namespace's name, a running job,
// and two waiting jobs. The test writes what their manager would write.
func hubWith(t *testing.T, namespace string) {
	t.Helper()
	manifest := strings.ReplaceAll(`
apiVersion: trainyard.dev/v1alpha1
kind: WorkerCluster
metadata: {name: NS-east, labels: {test: NS}}
spec: {connection: {kubeconfigPath: /kubeconfig}}
---
apiVersion: trainyard.dev/v1alpha1
kind: WorkerCluster
metadata: {name: NS-lost, labels: {test: NS}}
spec: {connection: {kubeconfigPath: /kubeconfig}}
---
apiVersion: trainyard.dev/v1alpha1
kind: DispatchPolicy
metadata: {name: NS}
spec: {jobs: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}}, clusters: {selector: {matchLabels: {test: NS}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: user, namespace: NS}
rules: [{apiGroups: [trainer.kubeflow.org, trainyard.dev], resources: [trainjobs, dispatches], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: user, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: user}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: NS-user}]
`, "NS", namespace)
	check.Must(t, world.cluster.Apply(t.Context(), manifest))
	t.Cleanup(func() { // Other tests list all workers, and all Dispatches.
		all := world.dynamic.Resource(dispatches).Namespace(namespace)
		check.Must(t, all.DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		for _, name := range []string{namespace + "-east", namespace + "-lost"} {
			check.Must(t, world.dynamic.Resource(workers).Delete(context.Background(), name, metav1.DeleteOptions{}))
		}
	})
	patch(t, workers, "", namespace+"-east", `{"status": {"kubernetesVersion": "v1.36.3", "jobs": 1,
		"conditions": [{"type": "Ready", "status": "True", "reason": "Connected", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
		"nodeGroups": [{"product": "H100", "resource": "nvidia.com/gpu", "nodes": 3, "allocatable": {"cpu": "64", "nvidia.com/gpu": "8"},
			"free": [{"gpus": 8, "nodes": 2, "free": {"cpu": "60", "nvidia.com/gpu": "8"}}, {"gpus": 0, "nodes": 1, "free": {"cpu": "60", "nvidia.com/gpu": "0"}}]}]}}`,
		"status")
	patch(t, workers, "", namespace+"-lost", `{"status": {"conditions": [
		{"type": "Ready", "status": "False", "reason": "Unreachable", "message": "timeout", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`, "status")
	for _, name := range []string{"runs", "waits", "urgent"} {
		j := job{name: name, namespace: namespace, runtime: "fails", spec: "managedBy: kueue.x-k8s.io/multikueue"}
		j.create(t)
		record(t, j)
	}
	placed := fmt.Sprintf(`{"spec": {"cluster": "%s-east", "attempt": 1}}`, namespace)
	patch(t, dispatches, namespace, "runs", placed)
	patch(t, dispatches, namespace, "runs", `{"status": {"phase": "Running", "attempt": 1, "conditions": [
		{"type": "Mirrored", "status": "True", "reason": "Copied", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`, "status")
	patch(t, dispatches, namespace, "urgent", `{"spec": {"priority": 1000}}`)
	patch(t, dispatches, namespace, "waits", fmt.Sprintf(`{"status": {"phase": "Waiting", "conditions": [
		{"type": "Placed", "status": "False", "reason": "NoFit", "message": "sum", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
		"explanation": [{"cluster": "%s-east", "reason": "InsufficientResources", "message": "lacks 8 nvidia.com/gpu"}]}}`, namespace), "status")
}

// record creates the Dispatch of a job.
func record(t *testing.T, j job) {
	t.Helper()
	object, err := world.dynamic.Resource(trainJobs).Namespace(j.namespace).Get(t.Context(), j.name, metav1.GetOptions{})
	check.Must(t, err)
	manifest := fmt.Sprintf(`
apiVersion: trainyard.dev/v1alpha1
kind: Dispatch
metadata: {name: %[1]s, namespace: %[2]s}
spec: {trainJob: {name: %[1]s, uid: %[3]s}, attempt: 0, podSets: [{name: node, count: 4, requests: {nvidia.com/gpu: 8}}]}
`, j.name, j.namespace, object.GetUID())
	check.Must(t, world.cluster.Apply(t.Context(), manifest))
}

func TestPlacementCommands(t *testing.T) {
	namespace := setUp(t)
	hubWith(t, namespace)
	file := filepath.Join(t.TempDir(), "job.yaml")
	const manifest = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: new}
spec: {managedBy: kueue.x-k8s.io/multikueue, runtimeRef: {name: fails}, trainer: {numNodes: 2, resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}}
`
	check.Must(t, os.WriteFile(file, []byte(manifest), 0o600))
	east := namespace + "-east"
	user := " --as=" + namespace + "-user"
	tests := map[string]struct {
		reason  string
		args    string
		want    []string
		not     []string
		wantErr string
		code    int
	}{
		"Clusters":          {reason: "what is free", args: "clusters " + east, want: []string{"H100   16/24        2x8", "v1.36.3"}},
		"ClustersLost":      {reason: "why one is not ready", args: "clusters -o wide", want: []string{namespace + "-lost   Unreachable", "timeout"}},
		"ClustersNoHeaders": {reason: "for scripts", args: "clusters --no-headers " + east, want: []string{east + "   True"}, not: []string{"NAME"}},
		"ClustersName":      {reason: "for scripts", args: "clusters -o name " + east, want: []string{"workercluster.trainyard.dev/" + east + "\n"}},
		"ClustersJSON":      {reason: "the objects", args: "clusters -o jsonpath={.items[*].kind} " + east + " " + namespace + "-lost", want: []string{"WorkerCluster WorkerCluster"}},
		"ClustersUnknown":   {reason: "the nearest is named", args: "clusters " + namespace + "-eats", wantErr: `did you mean "` + east + `"?`, code: 1},
		"ClustersForbidden": {reason: "the server's words", args: "clusters" + user, wantErr: `cannot list resource "workerclusters"`, code: 1},
		"ClustersFormat":    {reason: "a format that there is not", args: "clusters -o tsv", wantErr: `output format "tsv", allowed formats are: `, code: 1},
		"ClustersType":      {reason: "what -o name prints", args: "clusters -o name workercluster.trainyard.dev/" + east, want: []string{"workercluster.trainyard.dev/" + east + "\n"}},
		"Queue":             {reason: "the order", args: "queue -o name", want: []string{"dispatch.trainyard.dev/urgent\ndispatch.trainyard.dev/waits\n"}},
		"QueueWide":         {reason: "the policy", args: "queue -o wide", want: []string{"waits    0          NoFit         4x8 nvidia.com/gpu", namespace + "   sum"}},
		"QueueAll":          {reason: "all namespaces", args: "queue -A", want: []string{"NAMESPACE", namespace + "   urgent   1000"}},
		"QueueOne":          {reason: "who may see one namespace is not told positions", args: "queue" + user, want: []string{"<unknown>   urgent"}, wantErr: "positions are not known"},
		"QueueForbidden":    {reason: "what was asked for cannot be shown", args: "queue -A" + user, wantErr: "forbidden", code: 1},
		"QueueEmpty":        {reason: "nothing is not left unsaid", args: "queue -n default", wantErr: "No TrainJobs wait in default namespace."},
		"ExplainWaiting":    {reason: "why, and its position", args: "explain waits", want: []string{"State:        Waiting (NoFit)", "Position:     2 of 2", "Policy:       " + namespace, east + "   InsufficientResources   -       lacks 8 nvidia.com/gpu"}},
		"ExplainRunning":    {reason: "where", args: "explain runs", want: []string{"State:        Running on worker " + east}},
		"ExplainType":       {reason: "what kubectl get -o name prints", args: "explain trainjob.trainer.kubeflow.org/runs", want: []string{"State:        Running on worker " + east}},
		"ExplainDispatch":   {reason: "what queue -o name prints", args: "explain dispatch.trainyard.dev/waits", want: []string{"State:        Waiting (NoFit)"}},
		"ExplainUser":       {reason: "with few rights less is said", args: "explain waits" + user, want: []string{"State:        Waiting (NoFit)"}, not: []string{"Position", "Policy"}},
		"ExplainObject":     {reason: "the object", args: "explain runs -o jsonpath={.kind}/{.spec.cluster}", want: []string{"Dispatch/" + east}},
		"ExplainUnknown":    {reason: "the nearest is named", args: "explain wait", wantErr: `there is no TrainJob "wait" in namespace "` + namespace + `"`, code: 1},
		"ExplainNothing":    {reason: "one job", args: "explain", wantErr: "name one TrainJob", code: 1},
		"Simulate":          {reason: "where it would run, behind whom", args: "simulate -f " + file, want: []string{"TrainJob " + namespace + "/new would run on worker " + east, "Behind:    2 waiting jobs", "Policy:    " + namespace, "NotReady"}},
		"SimulateElsewhere": {reason: "a policy selects the worker by namespace", args: "simulate -n default -f " + file, want: []string{"would wait (NoPolicy)"}, code: 2},
		"SimulateForbidden": {reason: "the server's words", args: "simulate -f " + file + user, wantErr: "forbidden", code: 1},
		"SimulateNothing":   {reason: "a file is needed", args: "simulate", wantErr: "must specify -f", code: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			args := strings.Fields(tc.args)
			if !strings.Contains(tc.args, "-n ") {
				args = append(args, "-n", namespace)
			}
			c := start(t, args...)
			check.Equal(t, tc.code, c.wait(t), "%s: exit code; stderr %q", tc.reason, &c.err)
			for _, want := range tc.want {
				if !strings.Contains(c.out.String(), want) {
					t.Errorf("%s: no %q on stdout:\n%s", tc.reason, want, &c.out)
				}
			}
			for _, not := range tc.not {
				if strings.Contains(c.out.String(), not) {
					t.Errorf("%s: %q on stdout:\n%s", tc.reason, not, &c.out)
				}
			}
			if tc.wantErr == "" && c.err.String() != "" || !strings.Contains(c.err.String(), tc.wantErr) {
				t.Errorf("%s: want %q on stderr, got %q", tc.reason, tc.wantErr, &c.err)
			}
		})
	}
}

// TestSimulateDependencies: simulate says what pods need that the policy of the job brings to workers, and that the hub does not
// have with consent.
func TestSimulateDependencies(t *testing.T) {
	namespace := setUp(t)
	hubWith(t, namespace)
	patch(t, policies, "", namespace, `{"spec": {"propagate": {"dependencies": ["Secrets"]}}}`)
	check.Must(t, world.cluster.Apply(t.Context(), strings.ReplaceAll(`
apiVersion: v1
kind: Secret
metadata: {name: consented, namespace: NS, labels: {trainyard.dev/propagate: "true"}}
---
apiVersion: v1
kind: Secret
metadata: {name: private, namespace: NS}
`, "NS", namespace)))
	file := filepath.Join(t.TempDir(), "job.yaml")
	check.Must(t, os.WriteFile(file, []byte(`
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: new}
spec:
  managedBy: kueue.x-k8s.io/multikueue
  runtimeRef: {name: fails}
  trainer:
    env:
    - {name: A, valueFrom: {secretKeyRef: {name: absent, key: token}}}
    - {name: B, valueFrom: {secretKeyRef: {name: consented, key: token}}}
    - {name: C, valueFrom: {secretKeyRef: {name: private, key: token}}}
    - {name: D, valueFrom: {secretKeyRef: {name: unneeded, key: token, optional: true}}}
`), 0o600))
	c := start(t, "simulate", "-n", namespace, "-f", file)
	if code := c.wait(t); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, &c.out, &c.err)
	}
	want := fmt.Sprintf(`TrainJob "new": the pods need Secret "absent", Secret "private", and namespace %q of the hub has no such object with the `+
		"label trainyard.dev/propagate=true: nothing is brought to a worker, which must have it already", namespace)
	if !strings.Contains(c.err.String(), want) {
		t.Errorf("stderr is %q, want %q", &c.err, want)
	}
}

// TestSimulateFromPrintedWorkers checks that simulate can read the output of clusters, and that nothing is created.
func TestSimulateFromPrintedWorkers(t *testing.T) {
	namespace := setUp(t)
	hubWith(t, namespace)
	printed := start(t, "clusters", "-o", "yaml", namespace+"-east", namespace+"-lost")
	if code := printed.wait(t); code != 0 {
		t.Fatalf("exit code %d: %s", code, &printed.err)
	}
	dir := t.TempDir()
	files := map[string]string{
		"workers.yaml": printed.out.String(), "runtime.yaml": strings.Split(runtimes, "---")[0],
		"job.yaml": `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: new}
spec: {managedBy: kueue.x-k8s.io/multikueue, runtimeRef: {name: fails}, trainer: {numNodes: 2, resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}}
`,
	}
	for name, text := range files {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	// Nothing listens at this server, so that a request would fail.
	c := start(t, "simulate", "--server", "https://127.0.0.1:1", "--workers", at("workers.yaml"), "-f", at("runtime.yaml"), "-f", at("job.yaml"),
		"-o", "jsonpath={.metadata.namespace}/{.spec.cluster}")
	if code := c.wait(t); code != 0 || c.err.String() != "" {
		t.Errorf("exit code %d, stderr %q", code, &c.err)
	}
	check.Diff(t, "default/"+namespace+"-east", c.out.String(), "decision")
	list, err := world.dynamic.Resource(trainJobs).Namespace(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=new"})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("%d TrainJobs were created, %v", len(list.Items), err)
	}
}

func TestPlacementCompletion(t *testing.T) {
	namespace := setUp(t)
	hubWith(t, namespace)
	tests := map[string]struct {
		args []string
		want string
	}{
		"Clusters":     {args: []string{"clusters", namespace}, want: namespace + "-east\n" + namespace + "-lost\n:4\n"},
		"Retry":        {args: []string{"retry", "waits", "r"}, want: "runs\n:4\n"},
		"MoreClusters": {args: []string{"clusters", namespace + "-east", namespace}, want: namespace + "-lost\n:4\n"},
		"Explain":      {args: []string{"explain", "w"}, want: "waits\n:4\n"},
		"Output":       {args: []string{"queue", "-o", "ya"}, want: "yaml\n:4\n"},
		"Files":        {args: []string{"simulate", "-f", ""}, want: "yaml\nyml\njson\n:8\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := start(t, append([]string{"__complete", "-n", namespace}, tc.args...)...)
			c.wait(t)
			check.Diff(t, tc.want, c.out.String(), "")
		})
	}
}

// TestRetryIsAsked checks that retry writes the annotation of jobs that wait, each time another value, and of no others.
func TestRetryIsAsked(t *testing.T) {
	namespace := setUp(t)
	hubWith(t, namespace)
	asked := func(name string) string {
		t.Helper()
		job, err := world.dynamic.Resource(trainJobs).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
		check.Must(t, err)
		return job.GetAnnotations()["trainyard.dev/retry"]
	}
	const waits = "trainjob.trainer.kubeflow.org/waits retried: no worker has refused it, it waits for room (NoFit)\n"
	wantCall(t, start(t, "retry", "waits", "-n", namespace), 0, waits, "")
	first := asked("waits")
	wantCall(t, start(t, "retry", "runs", "trainjob/waits", "none", "-n", namespace), 1, waits,
		`TrainJob "runs" is not retried: it has a worker: Running on worker `+namespace+"-east")
	if again := asked("waits"); first == "" || again == "" || again == first {
		t.Errorf("the annotation is %q, and then %q, want other values", first, again)
	}
	if text := asked("runs"); text != "" {
		t.Errorf("the annotation of a job that has a worker is %q", text)
	}
	patch(t, dispatches, namespace, "waits", fmt.Sprintf(`{"status": {"refusals": [
		{"cluster": "%s-east", "outcome": "Rejected", "count": 1, "last": "2026-01-01T00:00:00Z"}]}}`, namespace), "status")
	wantCall(t, start(t, "retry", "waits", "-n", namespace), 0, "trainjob.trainer.kubeflow.org/waits retried: asked again: "+namespace+"-east\n", "")
	wantCall(t, start(t, "retry", "waits", "-n", namespace, "--as="+namespace+"-user"), 1, "", `cannot patch resource "trainjobs"`)
	wantCall(t, start(t, "retry"), 1, "", "name a TrainJob, or several: kubectl trainyard retry TRAINJOB")
}
