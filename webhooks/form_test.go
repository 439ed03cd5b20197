// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func TestAllFaultsAtOnce(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	err := e.Create(t.Context(), job(ns, "j", func(j *trainer.TrainJob) {
		j.Annotations = map[string]string{v1alpha1.AnnotationTTL: "1h"}
		j.Spec.Trainer.Env = []corev1.EnvVar{{Name: "MINE"}, {Name: "PET_NODE_RANK"}}
		j.Spec.Initializer = &trainer.Initializer{Dataset: &trainer.DatasetInitializer{}}
	}, patchedBy(
		patched("acme.io/a", "nod", trainer.PodSpecPatch{}),
		patched("acme.io/", "node", trainer.PodSpecPatch{Containers: []trainer.ContainerPatch{{Name: "nodes"}}}),
	)))
	wantFaults(t, err,
		`metadata.annotations[trainyard.dev/ttl-seconds-after-finished]: Invalid value: "1h": must be a number of seconds`,
		`spec.initializer.dataset: Invalid value: runtime "torch-distributed" must have dataset-initializer job`,
		"spec.runtimePatches[0]."+inFirstStep+`name: Not found: "nod": the replicated jobs of runtime "torch-distributed" are: "node"; `+
			`did you mean "node"?`,
		`spec.runtimePatches[1].manager: Invalid value: "acme.io/": must be a domain-prefixed path`,
		"spec.runtimePatches[1]."+inFirstStep+`template.spec.template.spec.containers[0].name: Not found: "nodes": `+
			`the containers of replicated job "node" are: "node"; did you mean "node"?`,
		`spec.trainer.env[1].name: Invalid value: "PET_NODE_RANK": reserved: the torch policy of runtime "torch-distributed" sets it`,
	)
}

func TestKubectlShowsEachFaultOnALine(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	path := filepath.Join(t.TempDir(), "job.yaml")
	manifest := fmt.Sprintf(`apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: j, namespace: %s}
spec:
  runtimeRef: {name: torch-distributed, kind: Clustertrainingruntime, apiGroup: trainer}
`, ns)
	check.Must(t, os.WriteFile(path, []byte(manifest), 0o600))
	_, err := e.cluster.Kubectl(t.Context(), "create", "--dry-run=server", "-f", path)
	if err == nil {
		t.Fatal("kubectl had no error")
	}
	for _, line := range []string{
		`* spec.runtimeRef.apiGroup: Unsupported value: "trainer": supported values: "trainer.kubeflow.org"`,
		`* spec.runtimeRef.kind: Unsupported value: "Clustertrainingruntime": supported values: "ClusterTrainingRuntime", "TrainingRuntime"; ` +
			`did you mean "ClusterTrainingRuntime"?`,
	} {
		if !strings.Contains(err.Error(), line) {
			t.Errorf("kubectl does not show %q:\n%v", line, err)
		}
	}
}

func TestMissingRuntimeNamesThoseThatExist(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	e.namespacedRuntime(t, ns, "mine")
	for i := range 10 {
		e.namespacedRuntime(t, ns, fmt.Sprintf("r%d", i))
	}
	cases := map[string]struct {
		reason, kind, name, want string
	}{
		"Near": {
			"A misspelt name has a nearest one.", trainer.ClusterTrainingRuntimeKind, "torch-distribute",
			`there is no such ClusterTrainingRuntime; existing ones in the cluster: "deepspeed-distributed", "jax-distributed", ` +
				`"torch-distributed", "torchtune-llama3.2-1b", "torchtune-llama3.2-3b", "xgboost-distributed"; did you mean "torch-distributed"?`,
		},
		"Many": {
			"Ten names are enough, and the nearest is named also if it is not among them.", trainer.TrainingRuntimeKind, "r8x",
			fmt.Sprintf(`there is no such TrainingRuntime; existing ones in namespace %q: "mine", "r0", "r1", "r2", "r3", "r4", "r5", "r6", `+
				`"r7", "r8" and 1 more; did you mean "r8"?`, ns),
		},
		"OtherKind": {
			"The Python SDK leaves the kind out.", trainer.ClusterTrainingRuntimeKind, "mine",
			`there is no such ClusterTrainingRuntime; existing ones in the cluster: "deepspeed-distributed", "jax-distributed", ` +
				`"torch-distributed", "torchtune-llama3.2-1b", "torchtune-llama3.2-3b", "xgboost-distributed"; there is a TrainingRuntime "mine": ` +
				`to use it, set spec.runtimeRef.kind`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := e.Create(t.Context(), job(ns, "j", func(j *trainer.TrainJob) {
				j.Spec.RuntimeRef = trainer.RuntimeRef{Name: tc.name, Kind: &tc.kind}
			}), client.DryRunAll)
			want := []string{fmt.Sprintf("spec.runtimeRef.name: Not found: %q: %s", tc.name, tc.want)}
			check.Diff(t, want, causes(t, err), fmt.Sprintf("%s\nfaults", tc.reason))
		})
	}
}

// lateCache returns runtimes as they were before the last change: no runtime, or a runtime without a policy.
type lateCache struct {
	client.Client
	before *trainer.TrainingRuntime
}

func (c lateCache) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	runtime, ok := object.(*trainer.TrainingRuntime)
	switch {
	case !ok:
		return c.Client.Get(ctx, key, object, opts...)
	case c.before == nil:
		return apierrors.NewNotFound(trainer.Resource("trainingruntimes"), key.Name)
	}
	c.before.DeepCopyInto(runtime)
	return nil
}

// TestRuntimeAndJobAppliedAtOnce: the existing runtime counts, not the runtime in the cache.
func TestRuntimeAndJobAppliedAtOnce(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	uses := e.namespacedRuntime(t, ns, "new")
	onOurs := func(j *trainer.TrainJob) { j.Spec.RuntimeRef.APIGroup = &trainer.GroupVersion.Group }
	v := e.validatorWith(t, lateCache{Client: e.manager.GetClient()})
	if warnings, err := v.ValidateCreate(t.Context(), job(ns, "j", uses, onOurs)); err != nil || len(warnings) > 0 {
		t.Errorf("warnings %q, error %v", warnings, err)
	}
	before := &trainer.TrainingRuntime{}
	check.Must(t, e.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "new"}, before))
	before.Spec.MLPolicy = nil
	v = e.validatorWith(t, lateCache{Client: e.manager.GetClient(), before: before})
	_, err := v.ValidateCreate(t.Context(), job(ns, "j", uses, onOurs, func(j *trainer.TrainJob) {
		j.Spec.Trainer.Env = []corev1.EnvVar{{Name: "PET_NODE_RANK", Value: "1"}}
	}))
	wantFaults(t, err, `spec.trainer.env[0].name: Invalid value: "PET_NODE_RANK": reserved`)
}

func TestDeprecatedRuntimeIsAWarning(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	torch := &trainer.ClusterTrainingRuntime{}
	check.Must(t, e.Get(t.Context(), client.ObjectKey{Name: "torch-distributed"}, torch))
	old := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: torch.Spec}
	old.Labels = map[string]string{constants.LabelSupport: constants.SupportDeprecated}
	e.create(t, old)
	defer func() { _ = e.Delete(t.Context(), old) }()
	c, got := e.withWarnings(t)
	check.Must(t, c.Create(t.Context(), job(ns, "j", func(j *trainer.TrainJob) { j.Spec.RuntimeRef.Name = "old" }), client.DryRunAll))
	if !slices.ContainsFunc(got.All(), func(w string) bool { return strings.Contains(w, `"old" is deprecated`) }) {
		t.Errorf("warnings %q", got.All())
	}
}

// A runtime has four GPUs in each node. The torch policy counts processes from resourcesPerNode of the job alone: hub
// and worker warn of GPUs without a process.
func TestGPUsWithoutProcesses(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	uses := e.namespacedRuntime(t, ns, "four-gpus", func(spec *trainer.TrainingRuntimeSpec) {
		podOfNode(spec).Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}
	})
	asks := func(resources corev1.ResourceList) func(*trainer.TrainJob) {
		return func(j *trainer.TrainJob) {
			j.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Limits: resources}
		}
	}
	memory := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Gi")}
	tests := map[string]struct {
		reason  string
		changes []func(*trainer.TrainJob)
		want    string
	}{
		"Memory": {
			reason: "one process for four GPUs", changes: []func(*trainer.TrainJob){asks(memory)},
			want: "each node has 4 GPUs, and torchrun's number of processes there is 1:",
		},
		"CPU": {
			reason:  "a process for each core",
			changes: []func(*trainer.TrainJob){asks(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("12")})},
			want:    "processes there is 12:",
		},
		"Nothing": {reason: "the GPUs of the runtime count"},
		"GPUs": {
			reason: "torchrun counts the GPUs",
			changes: []func(*trainer.TrainJob){asks(corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse("64Gi"), "nvidia.com/gpu": resource.MustParse("4"),
			})},
		},
		"OneProcess": {
			reason:  "the user has decided so",
			changes: []func(*trainer.TrainJob){asks(memory), func(j *trainer.TrainJob) { j.Spec.Trainer.NumProcPerNode = new(int32(1)) }},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			j := job(ns, strings.ToLower(name), append([]func(*trainer.TrainJob){uses}, tc.changes...)...)
			c, onWorker := e.withWarnings(t)
			if err := c.Create(t.Context(), j, client.DryRunAll); err != nil { // Sets the defaults of the CRD.
				t.Fatal(err)
			}
			j.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue")
			response := e.hub(t, knownToHub{}).validator.Handle(t.Context(), request(t, nil, j))
			if !response.Allowed {
				t.Errorf("the hub refuses the job: %v", response.Result)
			}
			for where, warnings := range map[string][]string{"worker": onWorker.All(), "hub": response.Warnings} {
				isMeant := func(w string) bool { return strings.Contains(w, "numProcPerNode") }
				if found := slices.ContainsFunc(warnings, isMeant); found != (tc.want != "") {
					t.Errorf("%s, the %s warns: %q", tc.reason, where, warnings)
				}
				if tc.want != "" && !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, tc.want) }) {
					t.Errorf("%s, the %s warns: %q, want %q", tc.reason, where, warnings, tc.want)
				}
			}
		})
	}
}
