// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/internal/hub"
	"github.com/trainyard/trainyard/views/explanation"
	"github.com/trainyard/trainyard/views/fleet"
	"github.com/trainyard/trainyard/views/jobs"
	"github.com/trainyard/trainyard/views/output"
)

// Result is what would happen to a job.
type Result struct {
	// Dispatch is the record that the manager would write: with spec.cluster if placed, and an explanation.
	Dispatch *v1alpha1.Dispatch
	// Policy is the name of the job's policy, or empty.
	Policy string
	// Data is what explanation.Data says of the job.
	Data string
	// Equals are other workers with the chosen worker's score, if the job has no UID that decides between them.
	Equals []v1alpha1.ClusterName
	// Before is how many waiting jobs of the hub come before the job.
	Before int
}

// Outcome is the outcome of a simulation.
type Outcome struct {
	// Results are the results of the jobs, in the order of the files.
	Results []Result
	// Clusters are the workers of the simulation.
	Clusters []v1alpha1.WorkerCluster
	// Notes say which data is incomplete. Ignored says what else was in the files.
	Notes []string
}

// Waiting counts the jobs that found no worker.
func (o *Outcome) Waiting() (count int) {
	for _, result := range o.Results {
		if result.Dispatch.Spec.Cluster == "" {
			count++
		}
	}
	return count
}

// Run decides on the TrainJobs of some files. Their objects hide those of the hub behind. If that is nil, only the
// files exist.
func Run(ctx context.Context, behind client.Client, files *Files, now time.Time) (*Outcome, error) {
	jobs, at := Of[*trainer.TrainJob](files)
	if err := prepare(files); err != nil {
		return nil, err
	}
	w, err := newWorld(ctx, files.over(behind))
	if err != nil {
		return nil, err
	}
	w.now = metav1.NewTime(now)
	if behind != nil {
		w.hub = behind
	}
	outcome := &Outcome{Clusters: w.clusters}
	for i, job := range jobs {
		result, err := w.decide(ctx, job)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at[i], err)
		}
		outcome.Results = append(outcome.Results, result)
	}
	outcome.Notes = w.notes
	return outcome, nil
}

// decide decides on one job. A placed job takes its room.
func (w *world) decide(ctx context.Context, trainJob *trainer.TrainJob) (Result, error) {
	job, decision, err := w.job(ctx, trainJob)
	if err != nil {
		return Result{}, err
	}
	result := Result{Dispatch: newDispatch(job, trainJob.UID)}
	if policy, _, err := dispatch.SelectPolicy(w.policies, job); err == nil {
		result.Data = explanation.Data(trainJob, policy)
	}
	if decision == nil {
		d := dispatch.Decide(job, w.policies, w.workers)
		decision = &d
		result.Dispatch.Status.Explanation = dispatch.Explain(job, w.policies, w.workers)
		w.noteDomains(job, result.Dispatch.Status.Explanation)
		sayAssumed(result.Dispatch.Status.Explanation)
	}
	if decision.Policy != nil {
		result.Policy = decision.Policy.Name
	}
	result.Dispatch.Spec.PodSets = job.PodSetsIn(decision.Cluster, decision.Domain)
	w.record(result.Dispatch, *decision)
	if trainJob.UID == "" {
		result.Equals = equals(result.Dispatch)
	}
	result.Before = w.waiting.Before(client.ObjectKeyFromObject(result.Dispatch), job.Priority)
	for i := range w.workers {
		if w.workers[i].Name == decision.Cluster {
			result.Dispatch.Spec.Runtime = dispatch.PinnedBy(decision.Policy)
			result.Dispatch.Spec.TranslatedInto = dispatch.TranslatedInto(&job, decision.Policy, &w.workers[i].Trainer)
			fleet.Place(&w.workers[i], result.Dispatch.Spec.PodSets)
		}
	}
	return result, nil
}

// notAsked is what the explanation adds where only an assumption may keep a job off a worker. The manager asks the agent of
// such a worker, whose answer may have the toleration that the pods lack here.
const notAsked = "; assumed: a simulation does not ask what the worker's admission makes of the pods, such as tolerations that it adds"

// sayAssumed adds that to the lines of workers on which no node takes the pods as they are here.
func sayAssumed(explanation []v1alpha1.ClusterExplanation) {
	for i := range explanation {
		if line := &explanation[i]; line.Reason == v1alpha1.ReasonNoMatchingNode {
			line.Message += notAsked
		}
	}
}

// noteDomains notes the workers whose status shows no node with the label of a job's topology.
func (w *world) noteDomains(job dispatch.Job, explanation []v1alpha1.ClusterExplanation) {
	for _, line := range explanation {
		if line.Reason == v1alpha1.ReasonNoDomain {
			w.note("the status of WorkerCluster %q shows no node with the label %s: of a worker with nodes of very many kinds, "+
				"labels with many values are left out there", line.Cluster, job.Topology.Label)
		}
	}
}

// job collects what a decision about a job needs. If it returns a decision, the job waits whatever the workers have.
func (w *world) job(ctx context.Context, trainJob *trainer.TrainJob) (dispatch.Job, *dispatch.Decision, error) {
	labels, err := w.namespaceLabels(ctx, trainJob.Namespace)
	if err != nil {
		return dispatch.Job{}, nil, err
	}
	job := dispatch.JobOf(trainJob, labels)
	job.Name = cmp.Or(job.Name, trainJob.GenerateName+"xxxxx")
	job.UID = cmp.Or(job.UID, types.UID(job.Namespace+"/"+job.Name))
	if ptr.Deref(trainJob.Spec.Suspend, false) {
		w.note("TrainJob %q has spec.suspend: true, which is ignored here: the hub places the job only when it is false",
			job.Name)
	}
	if ptr.Deref(trainJob.Spec.ManagedBy, v1alpha1.ManagedByBuiltIn) == v1alpha1.ManagedByBuiltIn {
		w.note("TrainJob %q has no spec.managedBy: %s, so the hub would run it itself, unless its namespace or policy asks for "+
			"such jobs (docs/install.md, Unmodified clients); the answer is for the job with that field", job.Name, v1alpha1.ManagedByMultiKueue)
	}
	known := demand.Hub{Policies: w.policies, Classes: w.classes}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(trainJob)
	if err != nil {
		return job, nil, fmt.Errorf("convert TrainJob %q: %w", job.Name, err)
	}
	needs, err := w.demands.Fill(ctx, &job, trainJob.DeepCopy(), known)
	missing := demand.Missing{}
	for i := range w.workers {
		missing.Add(w.workers[i].Name, &w.workers[i].Trainer, w.workers[i].Merging)
	}
	missing.Set(&job, &unstructured.Unstructured{Object: object}, needs, w.policies)
	job.Data = w.data().Locate(needs.Reads)
	w.noteRuntimes(&job, object)
	w.noteUnbrought(ctx, needs.Needed, &job)
	for _, class := range needs.PriorityClasses {
		if !w.classes.Has(class.Name) {
			w.note("there is no PriorityClass %q, which the pods of a runtime name: it is ignored", class.Name)
		}
	}
	switch obstacle := demand.Decision(err); {
	case obstacle == nil:
		return job, nil, err
	case obstacle.Reason == v1alpha1.ReasonRuntimeNotFound:
		return job, nil, w.runtimeMissing(ctx, trainJob)
	default:
		return job, obstacle, nil
	}
}

// noteRuntimes notes the workers whose own runtime makes other pods of a job than the hub's: the status of a WorkerCluster
// does not have the runtime.
func (w *world) noteRuntimes(job *dispatch.Job, object map[string]any) {
	policy, _, err := dispatch.SelectPolicy(w.policies, *job)
	if err != nil || policy.Rules().Runtime != v1alpha1.RuntimeAny {
		return
	}
	kind, key := trainjobs.RuntimeOf(&unstructured.Unstructured{Object: object})
	for i := range w.workers {
		known, _ := w.workers[i].Runtimes.Of(key)
		if known.Demand || known.IsRefused() {
			w.note("worker %q has its own %s %q, with which the hub counts its room: %s; the hub's is assumed here, so the answer "+
				"about this worker may be wrong", w.workers[i].Name, kind, key.Name, known.Difference())
		}
	}
}

// data says which data is near which workers.
func (w *world) data() *dispatch.DataMap {
	near := map[v1alpha1.ClusterName][]v1alpha1.WorkerData{}
	for i := range w.workers {
		near[w.workers[i].Name] = w.workers[i].Data
	}
	return dispatch.NewDataMap(near)
}

// runtimeMissing returns an error that names the most similar runtime.
func (w *world) runtimeMissing(ctx context.Context, job *trainer.TrainJob) error {
	reference := job.Spec.RuntimeRef
	kind := ptr.Deref(reference.Kind, trainer.ClusterTrainingRuntimeKind)
	var list client.ObjectList = &trainer.ClusterTrainingRuntimeList{}
	if kind == trainer.TrainingRuntimeKind {
		list = &trainer.TrainingRuntimeList{}
	}
	var names []string
	if err := w.client.List(ctx, list, client.InNamespace(job.Namespace)); err == nil {
		_ = meta.EachListItem(list, func(object runtime.Object) error {
			names = append(names, object.(client.Object).GetName())
			return nil
		})
	}
	return fmt.Errorf("spec.runtimeRef: there is no %s %q%s", kind, reference.Name, hub.DidYouMean(reference.Name, names))
}

func newDispatch(job dispatch.Job, uid types.UID) *v1alpha1.Dispatch {
	return &v1alpha1.Dispatch{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Dispatch"},
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: job.Name, UID: uid}, Priority: job.Priority, PodSets: job.PodSets,
		},
	}
}

func (w *world) record(d *v1alpha1.Dispatch, decision dispatch.Decision) {
	condition := metav1.Condition{
		Type: v1alpha1.DispatchPlaced, Status: metav1.ConditionFalse, Reason: decision.Reason, Message: decision.Message,
		LastTransitionTime: w.now,
	}
	d.Status.Phase, d.Status.Reason = v1alpha1.PhaseWaiting, decision.Reason
	if decision.Cluster != "" {
		condition.Status = metav1.ConditionTrue
		d.Status.Phase = v1alpha1.PhasePending
		d.Spec.Cluster, d.Spec.Attempt, d.Spec.Domain, d.Spec.AddedNodes = decision.Cluster, 1, decision.Domain, decision.AddedNodes
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationDecision, decision.Message)
	}
	d.Status.Conditions = []metav1.Condition{condition}
}

// equals returns the workers whose scores equal the chosen worker's score in every part.
func equals(d *v1alpha1.Dispatch) (names []v1alpha1.ClusterName) {
	score := map[v1alpha1.ClusterName]string{}
	for _, e := range d.Status.Explanation {
		if e.Score != nil {
			score[e.Cluster] = e.Message
		}
	}
	for _, e := range d.Status.Explanation {
		if e.Cluster != d.Spec.Cluster && e.Score != nil && e.Message == score[d.Spec.Cluster] {
			names = append(names, e.Cluster)
		}
	}
	return names
}

// Print prints the decisions for people: a text about each job, and a table of the workers.
func (o *Outcome) Print(out io.Writer, table func(io.Writer, *metav1.Table) error, now time.Time) error {
	for i, result := range o.Results {
		if i > 0 {
			if _, err := fmt.Fprintln(out); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(out, printers.EscapeTerminal(result.text())); err != nil {
			return err
		}
		if err := table(out, explanation.Workers(result.Dispatch, o.Clusters, now)); err != nil {
			return err
		}
	}
	return nil
}

// Headline says in one line what the job would do.
func (r Result) Headline() string {
	d := r.Dispatch
	if d.Spec.Cluster != "" {
		return fmt.Sprintf("TrainJob %s/%s would run on worker %s", d.Namespace, d.Name, d.Spec.Cluster)
	}
	return fmt.Sprintf("TrainJob %s/%s would wait (%s)", d.Namespace, d.Name, jobs.Reason(d))
}

// Details says more about it.
func (r Result) Details() []explanation.Detail {
	d := r.Dispatch
	details := []explanation.Detail{{Name: "Why", Value: explanation.Message(d)}}
	if len(r.Equals) > 0 {
		names := make([]string, len(r.Equals))
		for i := range r.Equals {
			names[i] = string(r.Equals[i])
		}
		details = append(details, explanation.Detail{
			Name: "Or", Value: strings.Join(names, ", ") + "; the scores are equal, and the UID decides that the job gets when it is created",
		})
	}
	behind := ""
	switch r.Before {
	case 0:
	case 1:
		behind = "one waiting job, which comes before it and may take the room"
	default:
		behind = fmt.Sprintf("%d waiting jobs, which come before it and may take the room", r.Before)
	}
	details = append(details, explanation.Detail{Name: "Behind", Value: behind}, explanation.Detail{Name: "Needs", Value: jobs.Needs(d.Spec.PodSets)},
		explanation.Detail{Name: "Data", Value: r.Data},
		explanation.Detail{Name: "Policy", Value: output.Or(r.Policy, output.None)}, explanation.Detail{Name: "Priority", Value: fmt.Sprint(d.Spec.Priority)})
	return slices.DeleteFunc(details, func(f explanation.Detail) bool { return f.Value == "" })
}

// text is the headline and the details, a line each.
func (r Result) text() string {
	var b strings.Builder
	b.WriteString(r.Headline() + "\n")
	for _, fact := range r.Details() {
		fmt.Fprintf(&b, "  %-10s %s\n", fact.Name+":", fact.Value)
	}
	return b.String()
}
