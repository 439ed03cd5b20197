// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/worker/trainjob"
	"github.com/trainyard/trainyard/test/check"
	hubwebhooks "github.com/trainyard/trainyard/webhooks/hub"
)

// knownToHub answers as a hub would.
type knownToHub struct {
	faults   field.ErrorList
	warnings []string
	err      error
	panics   bool
	worker   v1alpha1.ClusterName
	policy   *v1alpha1.DispatchPolicy
	asked    *int // how often somebody asked for the policy of a job
}

// Review implements Hub.
func (k knownToHub) Review(context.Context, *trainer.TrainJob) (field.ErrorList, []string, error) {
	if k.panics {
		panic("as told")
	}
	return k.faults, k.warnings, k.err
}

// PlacedOn implements Hub.
func (k knownToHub) PlacedOn(context.Context, types.NamespacedName, types.UID) (v1alpha1.ClusterName, error) {
	return k.worker, k.err
}

// TakesUnmanaged implements Hub.
func (k knownToHub) TakesUnmanaged(context.Context) (bool, error) {
	return k.policy != nil && k.policy.Spec.UnmanagedJobs == v1alpha1.UnmanagedDispatch, k.err
}

// PolicyOf implements Hub.
func (k knownToHub) PolicyOf(context.Context, *metav1.ObjectMeta, map[string]string) (*v1alpha1.DispatchPolicy, error) {
	if k.asked != nil {
		*k.asked++
	}
	return k.policy, k.err
}

// onHub has the webhooks of a hub.
type onHub struct{ validator, adopter, policyAdopter *admission.Webhook }

// hub returns the webhooks of a hub, which is the environment's cluster.
func (e *environment) hub(t *testing.T, known hubwebhooks.Hub, changes ...func(*hubwebhooks.Options)) onHub {
	t.Helper()
	opts := hubwebhooks.Options{
		ManagedBy: v1alpha1.ManagedByMultiKueue, Reader: e.manager.GetClient(), Live: e.manager.GetAPIReader(), DryRuns: e.Client,
		Hub: known, NewRuntimes: trainjob.NewRuntimes,
	}
	for _, change := range changes {
		change(&opts)
	}
	h, err := hubwebhooks.New(t.Context(), opts)
	check.Must(t, err)
	registered := handlers{byPath: map[string]http.Handler{}}
	h.Register(registered)
	at := func(path string) *admission.Webhook { return registered.byPath[path].(*admission.Webhook) }
	return onHub{
		validator: at("/validate-trainyard-hub-trainjob"), adopter: at("/mutate-trainyard-hub-trainjob"),
		policyAdopter: at("/mutate-trainyard-hub-trainjob-by-policy"),
	}
}

// request returns the request that the API server sends. old is nil for a creation.
func request(t *testing.T, old, j *trainer.TrainJob) admission.Request {
	t.Helper()
	raw := func(j *trainer.TrainJob) apiruntime.RawExtension {
		data, err := json.Marshal(j)
		check.Must(t, err)
		return apiruntime.RawExtension{Raw: data}
	}
	r := admissionv1.AdmissionRequest{Namespace: j.Namespace, Operation: admissionv1.Create, Object: raw(j)}
	if old != nil {
		r.Operation, r.OldObject = admissionv1.Update, raw(old)
	}
	return admission.Request{AdmissionRequest: r}
}

// dispatched makes a job that the manager owns. The API server has set the kind of its runtime.
func dispatched(j *trainer.TrainJob) {
	j.Spec.ManagedBy = new(v1alpha1.ManagedByMultiKueue)
	if j.Spec.RuntimeRef.Kind == nil {
		j.Spec.RuntimeRef.Kind = new(trainer.ClusterTrainingRuntimeKind)
	}
	if j.Spec.RuntimeRef.APIGroup == nil {
		j.Spec.RuntimeRef.APIGroup = new(trainer.GroupVersion.Group)
	}
}

func refusalOf(response admission.Response) error {
	if response.Allowed {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: *response.Result}
}

// TestHubAnswersAsAWorker: a hub refuses a job that it dispatches in the words with which the agent of a cluster
// refuses the same job.
func TestHubAnswersAsAWorker(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	validator := e.hub(t, knownToHub{}).validator
	onNode := func(change func(*trainer.ContainerPatch)) func(*trainer.TrainJob) {
		return func(j *trainer.TrainJob) {
			container := trainer.ContainerPatch{Name: "node"}
			change(&container)
			j.Spec.RuntimePatches = []trainer.RuntimePatch{patchOf("node", container)}
		}
	}
	for name, tc := range map[string]struct {
		change func(*trainer.TrainJob)
		has    string
	}{
		"Good": {change: func(*trainer.TrainJob) {}},
		"Reserved": {has: "spec.trainer.env[0].name", change: func(j *trainer.TrainJob) {
			j.Spec.Trainer.Env = []corev1.EnvVar{{Name: "PET_NNODES", Value: "3"}}
		}},
		"Misspelt": {has: `did you mean "node"?`, change: func(j *trainer.TrainJob) {
			j.Spec.RuntimePatches = []trainer.RuntimePatch{patchOf("nodes", trainer.ContainerPatch{Name: "node"})}
		}},
		"EnvOfPatch": {has: "spec.trainer.env", change: onNode(func(c *trainer.ContainerPatch) {
			c.Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
		})},
		"Initializer": {has: "spec.initializer.dataset", change: func(j *trainer.TrainJob) {
			j.Spec.Initializer = &trainer.Initializer{Dataset: &trainer.DatasetInitializer{StorageUri: new("hf://a/b")}}
		}},
		"LongName": {has: "metadata.name", change: func(j *trainer.TrainJob) { j.Name = strings.Repeat("a", 60) }},
		"MoreThanLimit": {has: "resources.requests", change: func(j *trainer.TrainJob) {
			j.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
				Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
			}
		}},
		"NoSuchKind": {has: "spec.runtimeRef.kind", change: func(j *trainer.TrainJob) { j.Spec.RuntimeRef.Kind = new("Runtime") }},
		"TTL": {has: "ttl-seconds-after-finished", change: func(j *trainer.TrainJob) {
			j.Annotations = map[string]string{v1alpha1.AnnotationTTL: "soon"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			local := job(ns, "j", tc.change)
			want := e.Create(t.Context(), local.DeepCopy(), client.DryRunAll)
			dispatched(local)
			got := refusalOf(validator.Handle(t.Context(), request(t, nil, local)))
			if (want == nil) != (got == nil) {
				t.Fatalf("the hub answers %v, the agent %v", got, want)
			}
			if want == nil && tc.has == "" {
				return
			}
			check.Diff(t, causes(t, want), causes(t, got), "answers (-agent +hub)")
			if !strings.Contains(got.Error(), tc.has) {
				t.Errorf("the answer lacks %q: %v", tc.has, got)
			}
		})
	}
}

// TestHubWarns: what may change is a warning.
func TestHubWarns(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	validator := e.hub(t, knownToHub{warnings: []string{"no worker"}}).validator
	response := validator.Handle(t.Context(), request(t, nil, job(ns, "j", dispatched, func(j *trainer.TrainJob) {
		j.Spec.RuntimeRef.Name = "torch-distribute"
	})))
	text := strings.Join(response.Warnings, "\n")
	if !response.Allowed || !strings.Contains(text, `did you mean "torch-distributed"?`) || !strings.Contains(text, "no worker") {
		t.Errorf("allowed %t, warnings:\n%s", response.Allowed, text)
	}
	validator = e.hub(t, knownToHub{faults: field.ErrorList{field.Invalid(field.NewPath("metadata"), "x", "wrong")}}).validator
	wantFaults(t, refusalOf(validator.Handle(t.Context(), request(t, nil, job(ns, "j", dispatched)))), "metadata: Invalid value")
}

// TestHubFailsOpen: nothing that is broken on the hub refuses a job.
func TestHubFailsOpen(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	nowhere, err := client.New(&rest.Config{Host: "http://127.0.0.1:1"}, client.Options{Scheme: e.Scheme(), Mapper: e.RESTMapper()})
	check.Must(t, err)
	away := func(o *hubwebhooks.Options) { o.Live, o.Reader, o.DryRuns = nowhere, nowhere, nowhere }
	undecodable := request(t, nil, job(ns, "j"))
	undecodable.Object.Raw = []byte(`{"spec":{"trainer":{"numNodes":"two"}}}`)
	for name, tc := range map[string]struct {
		hub     onHub
		request admission.Request
	}{
		"APIServer":   {e.hub(t, knownToHub{}, away), request(t, nil, job(ns, "j", dispatched))},
		"DryRuns":     {e.hub(t, knownToHub{}, func(o *hubwebhooks.Options) { o.DryRuns = nowhere }), request(t, nil, job(ns, "j", dispatched))},
		"Caches":      {e.hub(t, knownToHub{err: errors.New("not filled")}), request(t, nil, job(ns, "j", dispatched))},
		"Panic":       {e.hub(t, knownToHub{panics: true}), request(t, nil, job(ns, "j", dispatched))},
		"Undecodable": {e.hub(t, knownToHub{}), undecodable},
	} {
		t.Run(name, func(t *testing.T) {
			response := tc.hub.validator.Handle(t.Context(), tc.request)
			if !response.Allowed || !strings.Contains(strings.Join(response.Warnings, "\n"), "cannot check") {
				t.Errorf("allowed %t, warnings %q, want a warning of what was not checked", response.Allowed, response.Warnings)
			}
		})
	}
	adopted := e.hub(t, knownToHub{}, away).adopter.Handle(t.Context(), request(t, nil, job(ns, "j")))
	if !adopted.Allowed || len(adopted.Patches) > 0 || len(adopted.Warnings) != 1 {
		t.Errorf("without an API server: %+v", adopted)
	}
}

// TestHubChanges: a change that the copy would not get is refused.
func TestHubChanges(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	patch := func(value string) func(*trainer.TrainJob) {
		return func(j *trainer.TrainJob) {
			p := patchOf("node", trainer.ContainerPatch{Name: "node"})
			pod := p.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
			pod.NodeSelector = map[string]string{"zone": value}
			j.Spec.RuntimePatches = []trainer.RuntimePatch{p}
		}
	}
	ofKueue := func(j *trainer.TrainJob) {
		j.Spec.RuntimePatches = append(j.Spec.RuntimePatches, trainer.RuntimePatch{Manager: "kueue.x-k8s.io/manager"})
	}
	pinned := func(j *trainer.TrainJob) { j.Annotations = map[string]string{v1alpha1.AnnotationClusters: "a in"} }
	timed := func(j *trainer.TrainJob) { j.Spec.RuntimePatches[0].Time = &metav1.Time{} }
	misnamed := func(j *trainer.TrainJob) { j.Spec.RuntimePatches[0].Manager = "none" }
	east := knownToHub{worker: "east"}
	atPin := field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationClusters)
	badPin := knownToHub{faults: field.ErrorList{field.Invalid(atPin, "a in", "no selector")}}
	type with = []func(*trainer.TrainJob)
	for name, tc := range map[string]struct {
		old, now with
		known    knownToHub
		want     []string
		warning  string
	}{
		"Patch": {
			now: with{patch("a")}, known: east,
			want: []string{`spec.runtimePatches: Forbidden: the entries of trainyard.dev/test may change only while the ` +
				`TrainJob is suspended: its copy on worker "east" is made, and would not get the change; set spec.suspend to true`},
		},
		"Removed": {old: with{patch("a")}, known: east, want: []string{"spec.runtimePatches: Forbidden"}},
		"Trainer": {
			old: with{func(j *trainer.TrainJob) { j.Spec.Trainer = nil }}, known: east,
			want: []string{"spec.trainer: Forbidden: may change only"},
		},
		"Waiting":  {now: with{patch("a")}},
		"Suspends": {now: with{patch("a"), suspended}, known: east},
		"Resumes":  {old: with{suspended}, now: with{patch("a")}, known: east},
		"Kueue":    {now: with{ofKueue}, known: east},
		"Time":     {old: with{patch("a"), timed}, now: with{patch("a")}, known: east},
		"Label": {
			now: with{func(j *trainer.TrainJob) { j.Labels = map[string]string{"team": "a"} }}, known: east,
			warning: "metadata.labels[team]: the copy",
		},
		"BadPin": {
			now: with{pinned}, known: badPin, want: []string{"metadata.annotations[trainyard.dev/clusters]: Invalid"},
		},
		"BadPinBefore": {old: with{pinned}, now: with{pinned, suspended}, known: badPin},
		"Wrong":        {now: with{patch("a"), misnamed}, want: []string{"spec.runtimePatches[0].manager"}},
	} {
		t.Run(name, func(t *testing.T) {
			old, now := job(ns, "j", append(tc.old, dispatched)...), job(ns, "j", append(tc.now, dispatched)...)
			response := e.hub(t, tc.known).validator.Handle(t.Context(), request(t, old, now))
			if len(tc.want) > 0 || !response.Allowed {
				wantFaults(t, refusalOf(response), tc.want...)
			}
			text := strings.Join(response.Warnings, "\n")
			if (tc.warning == "") != (text == "") || !strings.Contains(text, tc.warning) {
				t.Errorf("warnings %q, want %q", text, tc.warning)
			}
		})
	}
}

// TestHubLeavesOthersAlone: jobs of other managers are not looked at, however wrong they are.
func TestHubLeavesOthersAlone(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	h := e.hub(t, knownToHub{panics: true})
	managers := map[string]*string{"None": nil, "BuiltIn": new(v1alpha1.ManagedByBuiltIn), "Other": new("acme.io/queue")}
	for name, managedBy := range managers {
		wrong := job(ns, "j", func(j *trainer.TrainJob) {
			j.Spec.ManagedBy, j.Spec.RuntimeRef.Name = managedBy, "none"
			j.Annotations = map[string]string{v1alpha1.AnnotationTTL: "soon"}
		})
		response := h.validator.Handle(t.Context(), request(t, nil, wrong))
		if !response.Allowed || len(response.Warnings) > 0 {
			t.Errorf("%s: %+v", name, response)
		}
	}
}

// TestHubAdopts: only a new job without another manager gets ours, where its namespace asks for that.
func TestHubAdopts(t *testing.T) {
	e := env(t)
	label := func(ns *corev1.Namespace) {
		ns.Labels = map[string]string{v1alpha1.LabelDispatch: v1alpha1.DispatchYes}
	}
	plain, labelled := e.namespace(t), e.namespace(t, label)
	h := e.hub(t, knownToHub{}).adopter
	annotated := func(value string) func(*trainer.TrainJob) {
		return func(j *trainer.TrainJob) {
			j.Annotations = map[string]string{v1alpha1.AnnotationDispatch: value, "a.io/b": "c"}
		}
	}
	managed := func(value string) func(*trainer.TrainJob) {
		return func(j *trainer.TrainJob) { j.Spec.ManagedBy = new(value) }
	}
	for name, tc := range map[string]struct {
		namespace string
		change    func(*trainer.TrainJob)
		adopted   bool
		refused   bool
	}{
		"NoManager": {namespace: labelled, change: func(*trainer.TrainJob) {}, adopted: true},
		"Default":   {namespace: labelled, change: managed(v1alpha1.ManagedByBuiltIn), adopted: true},
		"Wanted":    {namespace: labelled, change: annotated("true"), adopted: true},
		"Stays":     {namespace: labelled, change: annotated("false")},
		"Misspelt":  {namespace: labelled, change: annotated("no"), refused: true},
		"Other":     {namespace: labelled, change: managed("acme.io/queue")},
		"Ours":      {namespace: labelled, change: managed(v1alpha1.ManagedByMultiKueue)},
		"NoLabel":   {namespace: plain, change: func(*trainer.TrainJob) {}},
	} {
		t.Run(name, func(t *testing.T) {
			response := h.Handle(t.Context(), request(t, nil, job(tc.namespace, "j", tc.change)))
			patched, warned := len(response.Patches) > 0, len(response.Warnings) > 0
			if response.Allowed == tc.refused || patched != tc.adopted || warned != tc.adopted {
				t.Errorf("got %+v", response)
			}
		})
	}
	update := request(t, job(labelled, "j"), job(labelled, "j", suspended))
	if response := h.Handle(t.Context(), update); len(response.Patches) > 0 {
		t.Errorf("an existing job is adopted: %+v", response)
	}
	protected := e.hub(t, knownToHub{}, func(o *hubwebhooks.Options) { o.Protected = func(string) bool { return true } }).adopter
	response := protected.Handle(t.Context(), request(t, nil, job(labelled, "j")))
	if len(response.Patches) > 0 || len(response.Warnings) != 1 {
		t.Errorf("protected: %+v", response)
	}
}

// TestHubAdoptsByPolicy: a new job without a manager gets ours where its policy takes such jobs, unless its namespace
// or the job itself says no. A hub without such a policy reads nothing for it.
func TestHubAdoptsByPolicy(t *testing.T) {
	e := env(t)
	plain := e.namespace(t)
	stays := e.namespace(t, func(ns *corev1.Namespace) { ns.Labels = map[string]string{v1alpha1.LabelDispatch: v1alpha1.DispatchNo} })
	takes := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	takes.Spec.UnmanagedJobs = v1alpha1.UnmanagedDispatch
	kept := func(j *trainer.TrainJob) {
		j.Annotations = map[string]string{v1alpha1.AnnotationDispatch: v1alpha1.DispatchNo}
	}
	protected := func(o *hubwebhooks.Options) { o.Protected = func(string) bool { return true } }
	for name, tc := range map[string]struct {
		known     knownToHub
		namespace string
		change    func(*trainer.TrainJob)
		option    func(*hubwebhooks.Options)
		adopted   bool
		warned    bool
	}{
		"Takes":       {known: knownToHub{policy: takes}, adopted: true, warned: true},
		"NoPolicy":    {known: knownToHub{}},
		"Ignores":     {known: knownToHub{policy: &v1alpha1.DispatchPolicy{}}},
		"Namespace":   {known: knownToHub{policy: takes}, namespace: stays},
		"Job":         {known: knownToHub{policy: takes}, change: kept},
		"Protected":   {known: knownToHub{policy: takes}, option: protected},
		"HubIsAway":   {known: knownToHub{policy: takes, err: errors.New("no cache")}, warned: true},
		"NoNamespace": {known: knownToHub{policy: takes}, namespace: "missing", warned: true},
	} {
		t.Run(name, func(t *testing.T) {
			j := job(plain, "j")
			if tc.namespace != "" {
				j.Namespace = tc.namespace
			}
			if tc.change != nil {
				tc.change(j)
			}
			h := e.hub(t, tc.known, func(o *hubwebhooks.Options) {
				if tc.option != nil {
					tc.option(o)
				}
			}).policyAdopter
			response := h.Handle(t.Context(), request(t, nil, j))
			patched, warned := len(response.Patches) > 0, len(response.Warnings) > 0
			if !response.Allowed || patched != tc.adopted || warned != tc.warned {
				t.Errorf("got %+v", response)
			}
		})
	}
	var asked int
	without := e.hub(t, knownToHub{asked: &asked}, func(o *hubwebhooks.Options) { o.Live = nil }).policyAdopter // A read would panic.
	if response := without.Handle(t.Context(), request(t, nil, job(plain, "j"))); !response.Allowed || asked > 0 {
		t.Errorf("without such a policy: %+v, asked %d times", response, asked)
	}
}

// patchOf returns a patch of one container of a replicated job.
func patchOf(step string, container trainer.ContainerPatch) trainer.RuntimePatch {
	pod := &trainer.PodTemplatePatch{Spec: &trainer.PodSpecPatch{Containers: []trainer.ContainerPatch{container}}}
	job := &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: pod}}
	return trainer.RuntimePatch{
		Manager: "trainyard.dev/test",
		TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{
			Spec: &trainer.JobSetSpecPatch{ReplicatedJobs: []trainer.ReplicatedJobPatch{{Name: step, Template: job}}},
		}},
	}
}
