// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/views/simulation"
)

const torch = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch}
spec: {mlPolicy: {numNodes: 1, torch: {}}, template: {spec: {replicatedJobs: [{name: node, template: {metadata: {labels:
  {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {template: {spec: {containers: [{name: node, image: torch}]}}}}}]}}}
`

// mpi is a runtime that relies on defaults.
const mpi = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: mpi, namespace: research}
spec: {mlPolicy: {numNodes: 1, mpi: {}}, template: {spec: {replicatedJobs: [
  {name: launcher, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {template: {spec:
    {priorityClassName: high, containers: [{name: node, image: mpi}]}}}}},
  {name: node, template: {spec: {template: {spec: {containers: [{name: node, image: mpi, resources: {limits: {nvidia.com/gpu: 8}}}]}}}}}]}}}
`

// worker returns a worker with this number of nodes with 8 GPUs, all free.
func worker(name string, nodes int) string {
	return fmt.Sprintf(`
apiVersion: trainyard.dev/v1alpha1
kind: WorkerCluster
metadata: {name: %[1]s, labels: {name: %[1]s}}
spec: {connection: {kubeconfigPath: /kubeconfig}}
status:
  conditions: [{type: Ready, status: "True", reason: Connected, message: "", lastTransitionTime: null}]
  nodeGroups:
  - {resource: nvidia.com/gpu, nodes: %[2]d, allocatable: {cpu: 64, nvidia.com/gpu: 8, pods: 110}, free: [
      {gpus: 8, nodes: %[2]d, free: {cpu: 60, nvidia.com/gpu: 8, pods: 100}}]}
`, name, nodes)
}

// drifted is such a worker whose runtime torch is not the hub's.
func drifted(name string, nodes int) string {
	return worker(name, nodes) + `  runtimes: [{kind: ClusterTrainingRuntime, name: torch, state: Differs, paths: [spec.mlPolicy.numNodes], since: null}]
`
}

// racks is a worker with one free node in rack r1 and three in r2, with 8 GPUs each.
const racks = `
apiVersion: trainyard.dev/v1alpha1
kind: WorkerCluster
metadata: {name: racks}
spec: {connection: {kubeconfigPath: /kubeconfig}}
status:
  conditions: [{type: Ready, status: "True", reason: Connected, message: "", lastTransitionTime: null}]
  nodeGroups:
  - {resource: nvidia.com/gpu, nodes: 1, labels: {rack: r1}, allocatable: {cpu: 64, nvidia.com/gpu: 8, pods: 110}, free: [
      {gpus: 8, nodes: 1, free: {cpu: 60, nvidia.com/gpu: 8, pods: 100}}]}
  - {resource: nvidia.com/gpu, nodes: 3, labels: {rack: r2}, allocatable: {cpu: 64, nvidia.com/gpu: 8, pods: 110}, free: [
      {gpus: 8, nodes: 3, free: {cpu: 60, nvidia.com/gpu: 8, pods: 100}}]}
`

// pools is a worker with one free node of a pool, which may have three. One of the others is there and takes no pods.
const pools = `
apiVersion: trainyard.dev/v1alpha1
kind: WorkerCluster
metadata: {name: pools}
spec:
  connection: {kubeconfigPath: /kubeconfig}
  expandable:
  - {name: h100, selector: {pool: h100}, allocatable: {cpu: 64, nvidia.com/gpu: 8}, maximum: 3, price: {nvidia.com/gpu: 2}}
status:
  conditions: [{type: Ready, status: "True", reason: Connected, message: "", lastTransitionTime: null}]
  expandable: [{name: h100, nodes: 2}]
  nodeGroups:
  - {resource: nvidia.com/gpu, nodes: 1, labels: {pool: h100}, allocatable: {cpu: 64, nvidia.com/gpu: 8, pods: 110}, free: [
      {gpus: 8, nodes: 1, free: {cpu: 60, nvidia.com/gpu: 8, pods: 100}}]}
`

// job returns a job with this number of nodes that take 8 GPUs each. more is more of it, in YAML's flow style.
func job(name string, nodes int, more ...string) string {
	more = append(more, "", "")
	return fmt.Sprintf(`
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: %s, namespace: research, %s}
spec: {managedBy: kueue.x-k8s.io/multikueue, runtimeRef: {name: torch}, trainer: {numNodes: %d, resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}, %s}
`, name, more[0], nodes, more[1])
}

// mpiJob has all its settings from its runtime.
const mpiJob = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: a, namespace: research}
spec: {managedBy: kueue.x-k8s.io/multikueue, runtimeRef: {kind: TrainingRuntime, name: mpi}, trainer: {numNodes: 2}}
`

func policy(name, spec string) string {
	return fmt.Sprintf("apiVersion: trainyard.dev/v1alpha1\nkind: DispatchPolicy\nmetadata: {name: %s}\nspec: {%s}\n", name, spec)
}

func class(name string, value int, more string) string {
	return fmt.Sprintf("apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: %s}\nvalue: %d\n%s", name, value, more)
}

func run(t *testing.T, documents ...string) (*simulation.Outcome, error) {
	t.Helper()
	files, err := simulation.Parse("standard input", strings.NewReader(strings.Join(documents, "\n---\n")))
	check.Must(t, err)
	return simulation.Run(t.Context(), nil, files, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
}

func TestDecisions(t *testing.T) {
	const pinned = `annotations: {trainyard.dev/clusters: "name=small"}`
	tests := map[string]struct {
		reason    string
		documents []string
		want      []string
		notes     []string
	}{
		"Fits":    {reason: "the worker that is the fullest then", documents: []string{torch, worker("small", 2), worker("large", 8), job("a", 2)}, want: []string{"a small 0 Placed"}},
		"Waits":   {reason: "no worker has room", documents: []string{torch, worker("small", 2), job("a", 3)}, want: []string{"a  0 NoFit"}},
		"Several": {reason: "each takes its room", documents: []string{torch, worker("small", 2), job("a", 1), job("b", 1), job("c", 1)}, want: []string{"a small 0 Placed", "b small 0 Placed", "c  0 NoFit"}},
		"Passing": {reason: "one that waits takes none", documents: []string{torch, worker("small", 2), job("a", 3), job("b", 2)}, want: []string{"a  0 NoFit", "b small 0 Placed"}},
		"NoWorkers": {
			reason: "workers may be missing", documents: []string{torch, job("a", 1)}, want: []string{"a  0 NoWorkers"},
		},
		"Pin": {reason: "the job's annotation", documents: []string{torch, worker("small", 2), worker("large", 8), job("a", 2, pinned)}, want: []string{"a small 0 Placed"}},
		"Topology": {
			reason:    "a job takes its room in its domain, and the next one gets another",
			documents: []string{torch, racks, job("a", 2, `annotations: {trainyard.dev/topology: required=rack}`), job("b", 2, `annotations: {trainyard.dev/topology: required=rack}`), job("c", 2)},
			want:      []string{"a racks 0 Placed rack=r2", "b  0 NoFit", "c racks 0 Placed"},
		},
		"NoDomain": {
			reason:    "the status may leave the label out",
			documents: []string{torch, worker("small", 2), job("a", 2, `annotations: {trainyard.dev/topology: required=rack}`)},
			want:      []string{"a  0 NoFit"},
			notes: []string{`the status of WorkerCluster "small" shows no node with the label rack: of a worker with nodes of very many kinds, ` +
				`labels with many values are left out there`},
		},
		"BadTopology": {
			reason:    "the annotation means nothing",
			documents: []string{torch, worker("small", 2), job("a", 2, `annotations: {trainyard.dev/topology: rack}`)},
			want:      []string{"a  0 InvalidTopology"},
		},
		"Expandable": {
			reason:    "a worker adds the one node that it may still add, if no other has room, and for one job only",
			documents: []string{torch, pools, worker("small", 2), job("a", 2), job("b", 2), job("c", 1)},
			want:      []string{"a small 0 Placed", "b pools 0 Placed adds 1", "c  0 NoFit"},
		},
		"NotExpandable": {
			reason:    "the policy says so",
			documents: []string{torch, pools, job("a", 2), policy("p", "addNodes: Never")},
			want:      []string{"a  0 NoFit p"},
		},
		"WaitsForNodes": {
			reason: "a job that was placed holds its nodes until it runs",
			documents: []string{torch, pools, job("a", 1), `
apiVersion: trainyard.dev/v1alpha1
kind: Dispatch
metadata: {name: before, namespace: vision}
spec: {trainJob: {name: before, uid: x}, attempt: 1, cluster: pools, addedNodes: 1, podSets: [{name: node, count: 2, requests: {nvidia.com/gpu: 8}}]}
status: {phase: Starting}`},
			want: []string{"a  0 NoFit"},
		},
		"SameRuntime": {
			reason:    "the status says that small has another runtime of that name, and the policy wants the hub's",
			documents: []string{torch, drifted("small", 2), worker("large", 8), job("a", 2), policy("p", "runtime: Same")},
			want:      []string{"a large 0 Placed p"},
		},
		"AnyRuntime": {
			reason:    "another runtime of that name will do",
			documents: []string{torch, drifted("small", 2), job("a", 2), policy("p", "runtime: Any")},
			want:      []string{"a small 0 Placed p"},
			notes: []string{`worker "small" has its own ClusterTrainingRuntime "torch", with which the hub counts its room: it differs in ` +
				"spec.mlPolicy.numNodes; the hub's is assumed here, so the answer about this worker may be wrong"},
		},
		"Policy":    {reason: "the policy's selector and scores", documents: []string{torch, worker("small", 2), worker("large", 8), job("a", 2), policy("p", "scoring: [{name: MostAllocated}]")}, want: []string{"a small 0 Placed p"}},
		"NoPolicy":  {reason: "no policy is the job's", documents: []string{torch, worker("small", 2), job("a", 2), policy("p", "jobs: {selector: {matchLabels: {a: b}}}")}, want: []string{"a  0 NoPolicy"}},
		"Namespace": {reason: "the labels of the namespace", documents: []string{torch, worker("small", 2), job("a", 2), policy("p", "jobs: {namespaceSelector: {matchLabels: {team: llm}}}"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: research, labels: {team: llm}}"}, want: []string{"a small 0 Placed p"}},
		"NamespaceUnknown": {
			reason:    "every namespace has the label of its name, and if it is not known and matters, that is said",
			documents: []string{torch, worker("small", 2), job("a", 2), policy("p", "jobs: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: research}}}")},
			want:      []string{"a small 0 Placed p"}, notes: []string{`there is no Namespace "research": it is taken to have no labels of its own`},
		},
		"Expression": {reason: "the policy's expression, which sees the priority", documents: []string{torch, worker("small", 2), worker("large", 8), job("a", 2), policy("p", "clusters: {expression: 'job.priority < 5 || worker.gpus < 20.0'}"), class("d", 9, "globalDefault: true")}, want: []string{"a small 9 Placed p"}},
		"Class":      {reason: "the annotation's class", documents: []string{torch, worker("small", 2), job("a", 2, "annotations: {trainyard.dev/priority-class: high}"), class("high", 100, ""), class("d", 9, "globalDefault: true")}, want: []string{"a small 100 Placed"}},
		"NoClass":    {reason: "which must be there", documents: []string{torch, worker("small", 2), job("a", 2, "annotations: {trainyard.dev/priority-class: hihg}"), class("high", 100, "")}, want: []string{"a  0 PriorityClassNotFound"}},
		"PodsClass": {
			reason: "the class of the pods; and defaults of the CRDs are set", want: []string{"a small 100 Placed"},
			documents: []string{mpi, worker("small", 2), mpiJob, class("high", 100, ""), class("d", 9, "globalDefault: true")},
		},
		"NoPodsClass": {
			reason: "one that is not there counts as none", want: []string{"a small 9 Placed"},
			documents: []string{mpi, worker("small", 2), mpiJob, class("d", 9, "globalDefault: true")},
			notes:     []string{`there is no PriorityClass "high", which the pods of a runtime name: it is ignored`},
		},
		"Suspended": {
			reason: "decided on all the same", documents: []string{torch, worker("small", 2), job("a", 2, "", "suspend: true")}, want: []string{"a small 0 Placed"},
			notes: []string{`TrainJob "a" has spec.suspend: true, which is ignored here: the hub places the job only when it is false`},
		},
		"OfTheHub": {
			reason:    "decided on all the same",
			documents: []string{torch, worker("small", 2), strings.Replace(job("a", 2), "managedBy: kueue.x-k8s.io/multikueue, ", "", 1)},
			want:      []string{"a small 0 Placed"},
			notes: []string{`TrainJob "a" has no spec.managedBy: kueue.x-k8s.io/multikueue, so the hub would run it itself, unless its ` +
				`namespace or policy asks for such jobs (docs/install.md, Unmodified clients); the answer is for the job with that field`},
		},
		"OfTheHubByName": {
			reason:    "the value that the CRD sets",
			documents: []string{torch, worker("small", 2), strings.Replace(job("a", 2), "kueue.x-k8s.io/multikueue", v1alpha1.ManagedByBuiltIn, 1)},
			want:      []string{"a small 0 Placed"},
			notes: []string{`TrainJob "a" has no spec.managedBy: kueue.x-k8s.io/multikueue, so the hub would run it itself, unless its ` +
				`namespace or policy asks for such jobs (docs/install.md, Unmodified clients); the answer is for the job with that field`},
		},
		"Pending": {
			reason: "what is placed and has no pods yet holds its room", want: []string{"a  0 NoFit"},
			documents: []string{torch, worker("small", 2), job("a", 2), `
apiVersion: trainyard.dev/v1alpha1
kind: Dispatch
metadata: {name: before, namespace: vision}
spec: {trainJob: {name: before, uid: x}, attempt: 1, cluster: small, podSets: [{name: node, count: 1, requests: {nvidia.com/gpu: 8}}]}
status: {phase: Pending}`},
		},
		"Generated": {reason: "a name that is not known yet", documents: []string{torch, worker("small", 2), strings.Replace(job("a-", 2), "name: a-", "generateName: a-", 1)}, want: []string{"a-xxxxx small 0 Placed"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			outcome, err := run(t, tc.documents...)
			check.Must(t, err)
			var got []string
			for _, r := range outcome.Results {
				d := r.Dispatch
				got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %d %s %s", d.Name, d.Spec.Cluster, d.Spec.Priority, d.Status.Reason, r.Policy)))
				if d.Spec.AddedNodes > 0 {
					got[len(got)-1] += fmt.Sprint(" adds ", d.Spec.AddedNodes)
				}
				if d.Spec.Domain != nil {
					got[len(got)-1] += " " + d.Spec.Domain.String()
				}
			}
			check.Diff(t, tc.want, got, tc.reason)
			check.Diff(t, tc.notes, outcome.Notes, fmt.Sprintf("notes, %s", tc.reason))
		})
	}
}

// TestAdmissionIsNotAsked: where a taint keeps a job off a worker, the worker's admission might add the toleration, and
// the manager would ask. The line of that worker says that nobody has asked, and the line of a full worker does not.
func TestAdmissionIsNotAsked(t *testing.T) {
	tainted := strings.Replace(worker("tainted", 2), "nodes: 2, allocatable:",
		"nodes: 2, taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}], allocatable:", 1)
	outcome, err := run(t, torch, tainted, worker("full", 1), job("a", 2))
	check.Must(t, err)
	const words = "assumed: a simulation does not ask what the worker's admission makes of the pods"
	assumed := map[v1alpha1.ClusterName]bool{}
	for _, line := range outcome.Results[0].Dispatch.Status.Explanation {
		assumed[line.Cluster] = strings.Contains(line.Message, words)
	}
	check.Diff(t, map[v1alpha1.ClusterName]bool{"tainted": true, "full": false}, assumed, "the lines that say so")
	var out bytes.Buffer
	table := func(out io.Writer, table *metav1.Table) error {
		return printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(table, out)
	}
	check.Must(t, outcome.Print(&out, table, time.Now()))
	check.Equal(t, 1, strings.Count(out.String(), words), "lines that say so in %s", out.String())
}

func TestFaults(t *testing.T) {
	tests := map[string]struct {
		reason    string
		documents []string
		want      []string
	}{
		"Runtime":    {reason: "a runtime that there is not", documents: []string{torch, strings.Replace(job("a", 1), "torch", "tarch", 1)}, want: []string{`standard input (TrainJob "a"): spec.runtimeRef: there is no ClusterTrainingRuntime "tarch" (did you mean "torch"?)`}},
		"NoRuntime":  {reason: "a job names one", documents: []string{strings.Replace(job("a", 1), "{name: torch}", "{}", 1)}, want: []string{"spec.runtimeRef.name: it is required"}},
		"Kind":       {reason: "a kind of runtime that there is not", documents: []string{torch, strings.Replace(job("a", 1), "{name: torch}", "{kind: Runtime, name: torch}", 1)}, want: []string{`kind "Runtime" of group "trainer.kubeflow.org" is not known`}},
		"Expression": {reason: "line and column", documents: []string{job("a", 1), policy("p", "clusters: {expression: worker.nam == 'a'}")}, want: []string{`standard input (DispatchPolicy "p"): spec.clusters.expression: line 1, column 7: undefined field 'nam'`}},
		"Policy": {
			reason: "all faults", documents: []string{job("a", 1), policy("p", "queueing: StrictFifo, preemption: Always, hubFlavors: Requires, scoring: [{name: Sticki}]")},
			want: []string{
				`spec.queueing: it is "StrictFifo", and has to be one of BestEffortFIFO, StrictFIFO (did you mean "StrictFIFO"?)`,
				`spec.preemption: it is "Always", and has to be one of Never, LowerPriority`,
				`spec.hubFlavors: it is "Requires", and has to be one of Ignore, Require, Propagate (did you mean "Require"?)`,
				`(did you mean "Sticky"?)`, // The message names all scores.
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, tc.documents...)
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Run() = %v, want %q: %s", err, want, tc.reason)
				}
			}
		})
	}
}

// TestPrint checks that people can see which jobs come before a job, and which workers have an equal score.
func TestPrint(t *testing.T) {
	waiting := func(name string, priority int) string {
		return fmt.Sprintf("apiVersion: trainyard.dev/v1alpha1\nkind: Dispatch\nmetadata: {name: %[1]s, namespace: vision}\n"+
			"spec: {trainJob: {name: %[1]s, uid: %[1]s}, attempt: 0, priority: %[2]d}\nstatus: {phase: Waiting}\n", name, priority)
	}
	outcome, err := run(t, torch, worker("east", 2), worker("west", 2), waiting("first", 5), waiting("second", 0), waiting("later", -1), job("a", 1), job("b", 5))
	check.Must(t, err)
	first := outcome.Results[0]
	chosen, other := first.Dispatch.Spec.Cluster, first.Equals[0]
	var out bytes.Buffer
	table := func(out io.Writer, table *metav1.Table) error {
		return printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(table, out)
	}
	check.Must(t, outcome.Print(&out, table, time.Now()))
	// The hash of the workers' names and the job's name decides between the two.
	want := strings.NewReplacer("CHOSEN", string(chosen), "OTHER", string(other)).Replace(`
TrainJob research/a would run on worker CHOSEN
  Why:       score 88: MostAllocated 88; the highest of 2 workers on which the job fits
  Or:        OTHER; the scores are equal, and the UID decides that the job gets when it is created
  Behind:    2 waiting jobs, which come before it and may take the room
  Needs:     1x8 nvidia.com/gpu
  Policy:    <none>
  Priority:  0
WORKER   RESULT          SCORE   MESSAGE
CHOSEN     Fits (chosen)   88      MostAllocated 88
OTHER     Fits            88      MostAllocated 88

TrainJob research/b would wait (NoFit)
  Behind:    2 waiting jobs, which come before it and may take the room
  Needs:     5x8 nvidia.com/gpu
  Policy:    <none>
  Priority:  0
WORKER   RESULT                  SCORE   MESSAGE
`)
	if !strings.HasPrefix("\n"+out.String(), want) {
		t.Errorf("diff (-want +got):\n%s", cmp.Diff(want, "\n"+out.String()))
	}
	known, err := run(t, torch, worker("east", 2), worker("west", 2), job("a", 1, "uid: 1-2-3"))
	if err != nil || known.Results[0].Equals != nil {
		t.Errorf("Equals = %v, %v; want none: the job has a UID", known.Results[0].Equals, err)
	}
	check.Equal(t, 1, outcome.Waiting(), "Waiting()")
	if d := first.Dispatch; d.Annotations[v1alpha1.AnnotationDecision] == "" || d.Status.Phase != v1alpha1.PhasePending || len(d.Status.Explanation) != 2 {
		t.Errorf("%+v: want the Dispatch that the hub would write", d)
	}
}
