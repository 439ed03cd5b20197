// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"slices"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
)

// A job that runs, but not as its owner thinks, gets a warning when it is created, on a worker and on the hub. The
// JobSet shows that the warning is right.
func TestSurprises(t *testing.T) {
	e := env(t)
	withoutTrainer := func(j *trainer.TrainJob) { j.Spec.Trainer = nil }
	of := func(nodes int32, source trainer.MLPolicySource, changes ...func(*jobsetv1alpha2.ReplicatedJob)) trainer.TrainingRuntimeSpec {
		spec := runtimeSpec(constants.AncestorTrainer, 1, constants.Node)
		spec.MLPolicy = &trainer.MLPolicy{NumNodes: &nodes, MLPolicySource: source}
		for _, change := range changes {
			change(&spec.Template.Spec.ReplicatedJobs[0])
		}
		return spec
	}
	torch := trainer.MLPolicySource{Torch: &trainer.TorchMLPolicySource{}}
	jax := trainer.MLPolicySource{JAX: &trainer.JAXMLPolicySource{}}
	port := func(port int32, name string) func(*jobsetv1alpha2.ReplicatedJob) {
		return func(step *jobsetv1alpha2.ReplicatedJob) {
			step.Template.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: name, ContainerPort: port}}
		}
	}
	helper := func(parallelism, completions int32) trainer.TrainingRuntimeSpec {
		spec := of(1, torch)
		step := jobsetv1alpha2.ReplicatedJob{Name: "helper", Replicas: 1}
		step.Template.Spec.Parallelism, step.Template.Spec.Completions = &parallelism, &completions
		step.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "helper", Image: "image"}}
		spec.Template.Spec.ReplicatedJobs = append(spec.Template.Spec.ReplicatedJobs, step)
		return spec
	}
	mpi := func(nodes int32) trainer.TrainingRuntimeSpec {
		spec := of(nodes, trainer.MLPolicySource{MPI: &trainer.MPIMLPolicySource{}})
		spec.Template.Spec.ReplicatedJobs[0].Name = constants.Launcher
		node := jobsetv1alpha2.ReplicatedJob{Name: constants.Node, Replicas: 1}
		node.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: constants.Node, Image: "image"}}
		spec.Template.Spec.ReplicatedJobs = append(spec.Template.Spec.ReplicatedJobs, node)
		return spec
	}
	env := func(step *jobsetv1alpha2.ReplicatedJob, prefix string) bool {
		return slices.ContainsFunc(step.Template.Spec.Template.Spec.Containers[0].Env, func(v corev1.EnvVar) bool { return strings.HasPrefix(v.Name, prefix) })
	}
	for name, test := range map[string]struct {
		reason  string
		runtime trainer.TrainingRuntimeSpec
		change  func(*trainer.TrainJob)
		// service makes a Service of the job's name, nil for none.
		service *corev1.ServiceSpec
		// want are words of the warning, empty for none. hubOnly and workerOnly: only there.
		want                string
		hubOnly, workerOnly bool
		// is says of the first and the last step whether the warning is right.
		is func(first, last *jobsetv1alpha2.ReplicatedJob) bool
	}{
		"Torch": {
			reason: "each pod trains alone", runtime: of(3, torch), change: withoutTrainer, want: "the 3 pods get no rendezvous settings of the torch runtime",
			is: func(first, _ *jobsetv1alpha2.ReplicatedJob) bool {
				return !env(first, "PET_") && *first.Template.Spec.Parallelism == 3
			},
		},
		"TorchWithTrainer": {
			reason: "an empty one is enough", runtime: of(3, torch), change: func(j *trainer.TrainJob) { j.Spec.Trainer = &trainer.Trainer{} },
			is: func(first, _ *jobsetv1alpha2.ReplicatedJob) bool { return !env(first, "PET_") },
		},
		"JAX": {
			reason: "so with jax", runtime: of(2, jax), change: withoutTrainer, want: "the 2 pods get no rendezvous settings of the jax runtime",
			is: func(first, _ *jobsetv1alpha2.ReplicatedJob) bool { return !env(first, "JAX_") },
		},
		"XGBoost": {
			reason: "and xgboost", runtime: of(2, trainer.MLPolicySource{XGBoost: &trainer.XGBoostMLPolicySource{}}), change: withoutTrainer,
			want: "rendezvous settings of the xgboost runtime",
			is:   func(first, _ *jobsetv1alpha2.ReplicatedJob) bool { return !env(first, "DMLC_") },
		},
		"OnePod": {reason: "one pod is alone", runtime: of(1, torch), change: withoutTrainer},
		"Launchers": {
			reason: "numNodes counts what is called the trainer", runtime: mpi(3), want: `numNodes of the MPI runtime`,
			is: func(first, _ *jobsetv1alpha2.ReplicatedJob) bool { return *first.Template.Spec.Parallelism == 3 },
		},
		"OneLauncher": {
			reason: "as MPI wants it", runtime: mpi(1),
			is: func(first, last *jobsetv1alpha2.ReplicatedJob) bool {
				return *first.Template.Spec.Parallelism != 1 || *last.Template.Spec.Parallelism != 2
			},
		},
		"Port": {
			reason: "two ports without a name are one", runtime: of(1, torch, port(8080, "")), want: "port 8080 of container",
			is: func(first, _ *jobsetv1alpha2.ReplicatedJob) bool {
				ports := first.Template.Spec.Template.Spec.Containers[0].Ports
				return len(ports) == 1 && ports[0].ContainerPort == 29500
			},
		},
		"PortOfJAX": {reason: "so with jax", runtime: of(1, jax, port(8080, "")), want: "port 8080 of container"},
		"PortWithName": {
			reason: "then there are two", runtime: of(1, torch, port(8080, "metrics")),
			is: func(first, _ *jobsetv1alpha2.ReplicatedJob) bool {
				return len(first.Template.Spec.Template.Spec.Containers[0].Ports) != 2
			},
		},
		"Completions": {
			reason: "both become the parallelism", runtime: helper(2, 5), want: "completions 5 and parallelism 2",
			is: func(_, last *jobsetv1alpha2.ReplicatedJob) bool { return *last.Template.Spec.Completions == 2 },
		},
		"EqualCompletions": {reason: "nothing is lost", runtime: helper(2, 2)},
		"TTL": {
			reason: "the agent never runs a job again after its end", hubOnly: true, want: "ttlSecondsAfterFinished 60",
			runtime: func() trainer.TrainingRuntimeSpec {
				spec := of(1, torch)
				spec.Template.Spec.TTLSecondsAfterFinished = new(int32(60))
				return spec
			}(),
		},
		"Service":         {reason: "JobSet takes it", runtime: of(2, torch), service: &corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}, workerOnly: true, want: "not headless"},
		"HeadlessService": {reason: "it may do", runtime: of(2, torch), service: &corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}},
	} {
		t.Run(name, func(t *testing.T) {
			ns := e.namespace(t)
			e.create(t, &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "own"}, Spec: test.runtime})
			if test.service != nil {
				e.create(t, &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "j"},
					Spec:       *test.service,
				})
			}
			j := job(ns, "j", suspended, func(j *trainer.TrainJob) {
				j.Spec.RuntimeRef = trainer.RuntimeRef{Name: "own", Kind: new(trainer.TrainingRuntimeKind), APIGroup: new(trainer.GroupVersion.Group)}
			})
			if test.change != nil {
				test.change(j)
			}
			onHub := e.hub(t, knownToHub{}).validator.Handle(t.Context(), request(t, nil, job(ns, "j", func(hub *trainer.TrainJob) {
				hub.Spec = *j.Spec.DeepCopy()
				dispatched(hub)
			})))
			c, got := e.withWarnings(t)
			check.Must(t, c.Create(t.Context(), j))
			for where, texts := range map[string][]string{"hub": onHub.Warnings, "worker": got.All()} {
				want := test.want
				if where == "hub" && test.workerOnly || where == "worker" && test.hubOnly {
					want = ""
				}
				if want == "" && len(texts) > 0 || want != "" && (len(texts) != 1 || !strings.Contains(texts[0], want)) {
					t.Errorf("warnings on the %s: %q, want %q: %s", where, texts, want, test.reason)
				}
			}
			if test.is == nil {
				return
			}
			js := e.awaitJobSet(t, j, func(*jobsetv1alpha2.JobSet) bool { return true })
			steps := js.Spec.ReplicatedJobs
			if is := test.is(&steps[0], &steps[len(steps)-1]); is != (test.want != "") {
				t.Errorf("the JobSet does what the warning says: %t: %+v", is, steps)
			}
		})
	}
}
