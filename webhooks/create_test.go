// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
)

// namespacedRuntime makes a changed TrainingRuntime of torch-distributed. It returns a change that makes a job use it.
func (e *environment) namespacedRuntime(
	t *testing.T, namespace, name string, changes ...func(*trainer.TrainingRuntimeSpec),
) func(*trainer.TrainJob) {
	t.Helper()
	torch := &trainer.ClusterTrainingRuntime{}
	check.Must(t, e.Get(t.Context(), client.ObjectKey{Name: "torch-distributed"}, torch))
	r := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: torch.Spec}
	for _, change := range changes {
		change(&r.Spec)
	}
	e.create(t, r)
	return func(j *trainer.TrainJob) {
		j.Spec.RuntimeRef = trainer.RuntimeRef{Name: name, Kind: new(trainer.TrainingRuntimeKind)}
	}
}

func podOfNode(spec *trainer.TrainingRuntimeSpec) *corev1.PodSpec {
	return &spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
}

// wantFaults checks that a request was refused with these faults, in this order. It compares only their beginnings.
func wantFaults(t *testing.T, err error, want ...string) {
	t.Helper()
	got := causes(t, err)
	for i := range got {
		if i < len(want) && strings.HasPrefix(got[i], want[i]) {
			got[i] = want[i]
		}
	}
	check.Diff(t, want, got, "faults")
}

func TestUpstreamsRuntimesAreAccepted(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	var runtimes trainer.ClusterTrainingRuntimeList
	if err := e.List(t.Context(), &runtimes); err != nil || len(runtimes.Items) < 6 {
		t.Fatalf("%d runtimes, %v", len(runtimes.Items), err)
	}
	for _, r := range runtimes.Items {
		t.Run(r.Name, func(t *testing.T) {
			c, got := e.withWarnings(t)
			j := job(ns, "j", func(j *trainer.TrainJob) {
				j.Spec.RuntimeRef.Name = r.Name
				if strings.HasPrefix(r.Name, "torchtune") {
					j.Spec.Trainer = nil
					j.Spec.Initializer = &trainer.Initializer{Dataset: &trainer.DatasetInitializer{}, Model: &trainer.ModelInitializer{}}
				}
			})
			if err := c.Create(t.Context(), j, client.DryRunAll); err != nil || len(got.All()) > 0 {
				t.Errorf("warnings %q, error %v", got.All(), err)
			}
		})
	}
}

func TestNameTooLongForPods(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	longest := 63 - len("-node-0-1-abcde")
	check.Equal(t, nil, e.Create(t.Context(), job(ns, strings.Repeat("a", longest)), client.DryRunAll),
		"the longest name that fits is refused")
	wantFaults(t, e.Create(t.Context(), job(ns, strings.Repeat("a", longest+1)), client.DryRunAll), fmt.Sprintf(
		`metadata.name: Too long: may have at most %d characters with the runtime "torch-distributed", and has %d`, longest, longest+1))
}

// TestNameTooLongOfASuccessor: the first job's JobSet still runs. The second job's JobSet is checked as a new one.
func TestNameTooLongOfASuccessor(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	name := strings.Repeat("a", 63-len("-node-0-1-abcde"))
	first := job(ns, name)
	e.create(t, first)
	eventually(t, "JobSet in the webhook's cache", func(g gomega.Gomega) {
		js := &jobsetv1alpha2.JobSet{}
		g.Expect(e.manager.GetClient().Get(t.Context(), client.ObjectKeyFromObject(first), js)).To(gomega.Succeed())
		g.Expect(jobSetSuspended(js)).To(gomega.BeFalse())
	})
	v := e.validator(t)
	second := func(nodes int32) *trainer.TrainJob {
		return job(ns, name, func(j *trainer.TrainJob) {
			j.UID = "another"
			j.Spec.RuntimeRef.APIGroup, j.Spec.RuntimeRef.Kind = &trainer.GroupVersion.Group, new(trainer.ClusterTrainingRuntimeKind)
			j.Spec.Trainer.NumNodes = &nodes
		})
	}
	if warnings, err := v.ValidateCreate(t.Context(), second(3)); err != nil || len(warnings) > 0 {
		t.Errorf("warnings %q, error %v", warnings, err)
	}
	_, err := v.ValidateCreate(t.Context(), second(11))
	wantFaults(t, err, "metadata.name: Too long: ")
}

func TestFluxWithoutNodesIsAnAnswer(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	uses := e.namespacedRuntime(t, ns, "flux", func(spec *trainer.TrainingRuntimeSpec) {
		spec.MLPolicy = &trainer.MLPolicy{NumNodes: new(int32(2)), MLPolicySource: trainer.MLPolicySource{Flux: &trainer.FluxMLPolicySource{}}}
	})
	err := e.Create(t.Context(), job(ns, "j", uses, func(j *trainer.TrainJob) { j.Spec.Trainer = nil }))
	wantFaults(t, err, `spec.trainer.numNodes: Required value: the flux policy of runtime "flux" needs it`)
}

func TestPodSecurityIsATrainJobAnswer(t *testing.T) {
	e := env(t)
	ns := e.namespace(t, func(n *corev1.Namespace) {
		n.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	})
	const words = `Invalid value: pods of replicated job "node" are refused: violates PodSecurity "restricted:latest": `
	wantFaults(t, e.Create(t.Context(), job(ns, "j")), "spec.runtimeRef.name: "+words)

	secure := func(nonRoot bool) trainer.RuntimePatch {
		return patched("acme.io/a", "node", trainer.PodSpecPatch{
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &nonRoot, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []trainer.ContainerPatch{{Name: "node", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(bool), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		})
	}
	wantFaults(t, e.Create(t.Context(), job(ns, "j", patchedBy(secure(false)))),
		"spec.runtimePatches[0]."+inFirstStep+"template.spec.template.spec.securityContext: "+words+"runAsNonRoot != true")
	check.Equal(t, nil, e.Create(t.Context(), job(ns, "j", patchedBy(secure(true))), client.DryRunAll),
		"a job that is secure is refused")
}

func TestWhatPodsAreRefusedForIsATrainJobAnswer(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	e.create(t, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "limits"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{"cpu": resource.MustParse("4")},
		}}},
	})
	cpu := func(amount string) func(*trainer.TrainJob) {
		return func(j *trainer.TrainJob) {
			j.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse(amount)}}
		}
	}
	important := e.namespacedRuntime(t, ns, "important", func(spec *trainer.TrainingRuntimeSpec) {
		podOfNode(spec).PriorityClassName = "no-such-class"
	})
	pod := "spec.runtimePatches[0]." + inFirstStep + "template.spec.template.spec."
	cases := map[string]struct {
		reason string
		change func(*trainer.TrainJob)
		want   []string
	}{
		"LimitRange": {
			"What the trainer asks for is too much.", cpu("5"),
			[]string{`spec.trainer.resourcesPerNode: Invalid value: pods of replicated job "node" are refused: ` +
				`maximum cpu usage per Container is 4, but limit is 5`},
		},
		"Image": {
			"The trainer's image is none.",
			func(j *trainer.TrainJob) { cpu("1")(j); j.Spec.Trainer.Image = new(" a") },
			[]string{`spec.trainer.image: Invalid value: pods of replicated job "node" are refused: spec.containers[0].image: Invalid value: " a"`},
		},
		"ServiceAccount": {
			"The patch names an account that does not exist.",
			func(j *trainer.TrainJob) {
				cpu("1")(j)
				patchedBy(patched("acme.io/a", "node", trainer.PodSpecPatch{ServiceAccountName: new("nobody")}))(j)
			},
			[]string{pod + `serviceAccountName: Invalid value: pods of replicated job "node" are refused: error looking up service account ` +
				ns + `/nobody: serviceaccount "nobody" not found`},
		},
		"LastPatch": {
			"Of two patches of a field the later one counts.",
			func(j *trainer.TrainJob) {
				cpu("1")(j)
				patchedBy(patched("acme.io/a", "node", trainer.PodSpecPatch{NodeSelector: map[string]string{"a": "b"}}),
					patched("acme.io/b", "node", trainer.PodSpecPatch{NodeSelector: map[string]string{"a": "b c"}}))(j)
			},
			[]string{"spec.runtimePatches[1]." + inFirstStep + "template.spec.template.spec.nodeSelector: "},
		},
		"Volume": {
			"A container mounts what the pod does not have.",
			func(j *trainer.TrainJob) {
				cpu("1")(j)
				mount := corev1.VolumeMount{Name: "data", MountPath: "/data"}
				patchedBy(patched("acme.io/a", "node", trainer.PodSpecPatch{
					Containers: []trainer.ContainerPatch{{Name: "node", VolumeMounts: []corev1.VolumeMount{mount}}},
				}))(j)
			},
			[]string{pod + `containers[0].volumeMounts: Invalid value: pods of replicated job "node" are refused: ` +
				`spec.containers[0].volumeMounts[0].name: Not found: "data"`},
		},
		"PriorityClass": {
			"It is the runtime's fault.",
			func(j *trainer.TrainJob) { cpu("1")(j); important(j) },
			[]string{`spec.runtimeRef.name: Invalid value: pods of replicated job "node" are refused: ` +
				`no PriorityClass with name no-such-class was found`},
		},
		"NoNodes": {
			"Of a job without nodes there are no pods that could be refused.",
			func(j *trainer.TrainJob) { cpu("5")(j); j.Spec.Trainer.NumNodes = new(int32(0)) }, nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := e.Create(t.Context(), job(ns, "j", tc.change), client.DryRunAll)
			wantFaults(t, err, tc.want...)
			if t.Failed() {
				t.Log(tc.reason)
			}
		})
	}
}

func TestJobsThatOthersManageAreNotTriedOut(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	elsewhere := func(j *trainer.TrainJob) { j.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue") }
	tooLong := strings.Repeat("a", 63)
	check.Equal(t, nil, e.Create(t.Context(), job(ns, tooLong, elsewhere), client.DryRunAll),
		"the name is not about this cluster")
	wantFaults(t, e.Create(t.Context(), job(ns, "j", elsewhere, patchedBy(patched("acme.io/a", "nodes", trainer.PodSpecPatch{})))),
		"spec.runtimePatches[0]."+inFirstStep+`name: Not found: "nodes"`)
	// The manager of the job may wait for the runtime, so the user gets a warning.
	c, got := e.withWarnings(t)
	ofTomorrow := job(ns, "early", elsewhere, func(j *trainer.TrainJob) { j.Spec.RuntimeRef.Name = "of-tomorrow" })
	check.Equal(t, nil, c.Create(t.Context(), ofTomorrow, client.DryRunAll), "the runtime is not needed here")
	if !slices.ContainsFunc(got.All(), func(w string) bool { return strings.Contains(w, `spec.runtimeRef.name: Not found: "of-tomorrow"`) }) {
		t.Errorf("warnings %q", got.All())
	}
}

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
