// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	"github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func namespacedRuntime(name string) func(*trainer.TrainJob) {
	return func(j *trainer.TrainJob) {
		j.Spec.RuntimeRef = trainer.RuntimeRef{Name: name, Kind: new("TrainingRuntime")}
	}
}

// runtimeLike returns a TrainingRuntime with the spec of torch-distributed.
func (e *environment) runtimeLike(t *testing.T, namespace, name string) *trainer.TrainingRuntime {
	t.Helper()
	var torch trainer.ClusterTrainingRuntime
	check.Must(t, e.Get(t.Context(), client.ObjectKey{Name: "torch-distributed"}, &torch))
	return &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: torch.Spec}
}

// touch causes a pass for a job.
func (e *environment) touch(t *testing.T, j *trainer.TrainJob) {
	t.Helper()
	update(t, e, j, func(j *trainer.TrainJob) {
		n, _ := strconv.Atoi(j.Annotations["touched"])
		metav1.SetMetaDataAnnotation(&j.ObjectMeta, "touched", strconv.Itoa(n+1))
	})
}

func TestUnknownKindOfRuntimeFails(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	j := e.createJob(t, ns, "unsupported", func(j *trainer.TrainJob) {
		j.Spec.RuntimeRef = trainer.RuntimeRef{Name: "llm", APIGroup: new("serving.example.com"), Kind: new("ServingRuntime")}
	})
	e.awaitConditions(t, j, metav1.Condition{
		Type: "Failed", Status: "True", Reason: "TrainingRuntimeNotSupported",
		Message: `runtimeRef has the unsupported kind "ServingRuntime.serving.example.com"; supported are: ` +
			`ClusterTrainingRuntime.trainer.kubeflow.org, TrainingRuntime.trainer.kubeflow.org`,
	})
	e.touch(t, j)
	e.fence(t, ns)
	if e.jobSetExists(t, j) {
		t.Error("a job without a runtime has a JobSet")
	}
}

// TestMissingRuntimeWakesJob cannot pass by a retry: the controller retries after an hour.
func TestMissingRuntimeWakesJob(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	j := e.createJob(t, ns, "early", namespacedRuntime("late"))
	e.awaitEvent(t, j, ReasonRuntimeNotFound, `"late" not found`, "TrainingRuntime")
	for range 3 {
		e.touch(t, j)
	}
	e.fence(t, ns)
	check.Equal(t, 1, len(e.events(t, j)), "the same problem was told more than once")
	check.Diff(t, trainer.TrainJobStatus{}, e.get(t, j).Status, "status")
	e.create(t, e.runtimeLike(t, ns, "late"))
	e.awaitJobSet(t, j)
}

func TestMissingClusterRuntimeWakesJob(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	j := e.createJob(t, ns, "early", func(j *trainer.TrainJob) { j.Spec.RuntimeRef.Name = "late-" + ns })
	e.awaitEvent(t, j, ReasonRuntimeNotFound, `"late-`+ns+`" not found`, "ClusterTrainingRuntime")
	runtime := &trainer.ClusterTrainingRuntime{
		ObjectMeta: metav1.ObjectMeta{Name: "late-" + ns}, Spec: e.runtimeLike(t, ns, "").Spec,
	}
	e.create(t, runtime)
	e.awaitJobSet(t, j)
}

func TestRefusalIsToldInTheServersWords(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	refusal := `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-jobsets-` + ns + `}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ` + ns + `}}
    resourceRules:
    - {apiGroups: [jobset.x-k8s.io], apiVersions: ["*"], operations: [CREATE], resources: [jobsets]}
  validations:
  - {expression: "false", message: "the budget of this team is spent"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-jobsets-` + ns + `}
spec: {policyName: no-jobsets-` + ns + `, validationActions: [Deny]}
`
	check.Must(t, e.cluster.Apply(t.Context(), refusal))
	eventually(t, "policy", func(g gomega.Gomega) {
		js := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "probe"}}
		g.Expect(e.Create(t.Context(), js, client.DryRunAll)).To(gomega.MatchError(gomega.ContainSubstring("budget")))
	})
	j := e.createJob(t, ns, "refused")
	e.awaitEvent(t, j, ReasonApplyFailed, "the budget of this team is spent", "apply JobSet of TrainJob")
	check.Diff(t, trainer.TrainJobStatus{}, e.get(t, j).Status, "status")
}

// TestPanicOfFrameworkIsAnEvent: Flux dereferences spec.trainer, which is optional.
func TestPanicOfFrameworkIsAnEvent(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	flux := e.runtimeLike(t, ns, "flux")
	flux.Spec.MLPolicy.MLPolicySource = trainer.MLPolicySource{Flux: &trainer.FluxMLPolicySource{NumProcPerNode: new(int32(1))}}
	e.create(t, flux)
	j := e.createJob(t, ns, "bare", namespacedRuntime("flux"), func(j *trainer.TrainJob) { j.Spec.Trainer = nil })
	e.awaitEvent(t, j, ReasonBuildFailed, "the runtime framework panicked", "nil pointer")
	e.fence(t, ns)
}

func TestForeignJobSetIsNotTakenOver(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	foreign := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "taken"}}
	foreign.Spec.Suspend = new(true)
	e.create(t, foreign)
	foreign.Status = jobSetCompleted()
	check.Must(t, e.Status().Update(t.Context(), foreign))
	j := e.createJob(t, ns, "taken")
	e.awaitEvent(t, j, ReasonJobSetConflict, "waiting for JobSet "+ns+"/taken to be deleted")
	e.touch(t, j)
	e.fence(t, ns)
	var got jobsetv1alpha2.JobSet
	if err := e.Get(t.Context(), client.ObjectKeyFromObject(j), &got); err != nil || got.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the foreign JobSet was written (error: %v):\n%s", err, cmp.Diff(foreign, &got))
	}
	check.Diff(t, trainer.TrainJobStatus{}, e.get(t, j).Status, "the foreign JobSet's end was taken for the job's")
	check.Must(t, e.Delete(t.Context(), foreign))
	e.awaitJobSet(t, j)
}

// TestRecreatedJobInheritsNothing: the first job's JobSet and snapshot still exist when the second job is created.
func TestRecreatedJobInheritsNothing(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	first := e.createJob(t, ns, "again")
	left := e.awaitJobSet(t, first)
	e.setJobSetStatus(t, first, jobSetCompleted())
	e.awaitConditions(t, first, complete)
	check.Must(t, e.Delete(t.Context(), first))
	second := e.createJob(t, ns, "again")
	e.fence(t, ns)
	check.Diff(t, trainer.TrainJobStatus{}, e.get(t, second).Status, "the second job has the first one's status")
	snapshot := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "again-runtime-snapshot"}}
	for _, object := range []client.Object{left, snapshot} {
		check.Must(t, e.Delete(t.Context(), object))
		e.fence(t, ns)
	}
	e.awaitJobSet(t, second)
	if got := e.events(t, second); len(got) > 0 {
		t.Errorf("waiting for the garbage collector is normal, but was told: %q", got)
	}
}

// TestJobsOfEarlierJobSetAreAwaited: background deletion removes the JobSet first. Its Jobs may still make pods.
func TestJobsOfEarlierJobSetAreAwaited(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	over := e.jobLeft(t, ns, "over")
	over.Status = batchv1.JobStatus{
		StartTime: new(metav1.Now()),
		Conditions: []batchv1.JobCondition{
			{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}, {Type: batchv1.JobFailed, Status: corev1.ConditionTrue},
		},
	}
	check.Must(t, e.Status().Update(t.Context(), over))
	e.awaitJobSet(t, e.createJob(t, ns, "over"))

	left := e.jobLeft(t, ns, "left")
	j := e.createJob(t, ns, "left")
	e.fence(t, ns)
	if e.jobSetExists(t, j) {
		t.Error("a JobSet was made although a Job of an earlier one was there")
	}
	e.clock.SetTime(e.clock.Now().Add(leftoverTime)) // No JobSet controls this Job, so the controller must not delete it.
	e.fence(t, ns)
	if e.jobSetExists(t, j) {
		t.Error("a JobSet was made although somebody's Job was there")
	}
	check.Must(t, e.Delete(t.Context(), left, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	e.awaitJobSet(t, j)
	if got := e.events(t, j); len(got) > 0 {
		t.Errorf("waiting for the garbage collector is normal, but was told: %q", got)
	}
}

// TestLeftoversAreDeleted: a garbage collector that missed the deletion of a TrainJob may never delete its objects.
func TestLeftoversAreDeleted(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	first := e.createJob(t, ns, "left")
	jobSet := e.awaitJobSet(t, first)
	job := e.jobLeft(t, ns, "left", *metav1.NewControllerRef(jobSet, jobsetv1alpha2.SchemeGroupVersion.WithKind("JobSet")))
	check.Must(t, e.Delete(t.Context(), first))
	second := e.createJob(t, ns, "left")
	e.fence(t, ns)
	if err := e.Get(t.Context(), client.ObjectKeyFromObject(jobSet), jobSet); err != nil {
		t.Fatalf("the garbage collector has its time, but: %v", err)
	}
	e.clock.SetTime(e.clock.Now().Add(leftoverTime))
	update(t, e, second, func(j *trainer.TrainJob) { j.Annotations = map[string]string{"test": "wakes it"} })
	if next := e.awaitJobSet(t, second); next.UID == jobSet.UID {
		t.Error("the JobSet is still the one of the earlier TrainJob")
	}
	if err := e.Get(t.Context(), client.ObjectKeyFromObject(job), job); !apierrors.IsNotFound(err) {
		t.Errorf("a Job of the earlier JobSet is there: %v", err)
	}
}

// jobLeft makes a Job whose JobSet is gone.
func (e *environment) jobLeft(t *testing.T, namespace, jobSet string, owners ...metav1.OwnerReference) *batchv1.Job {
	t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: jobSet + "-node-0", Labels: map[string]string{jobsetv1alpha2.JobSetNameKey: jobSet}, OwnerReferences: owners,
	}}
	job.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "node", Image: "example.com/trainer:1"}},
	}
	e.create(t, job)
	return job
}

// behindClient is a cached client whose cache has not yet seen the latest changes of one TrainJob.
type behindClient struct {
	client.Client
	behind *trainer.TrainJob
}

func (c behindClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if j, ok := object.(*trainer.TrainJob); ok && key == client.ObjectKeyFromObject(c.behind) {
		c.behind.DeepCopyInto(j)
		return nil
	}
	return c.Client.Get(ctx, key, object, opts...)
}

// reconcileBehind calls Reconcile with a cache that still has the given version of the job.
func (e *environment) reconcileBehind(t *testing.T, behind *trainer.TrainJob) ctrl.Result {
	t.Helper()
	runtimes, err := NewRuntimes(t.Context(), e.cached, noIndex{})
	check.Must(t, err)
	clients := Clients{Cached: behindClient{e.cached, behind}, Live: e.Client}
	return reconcileOnce(t, newReconciler(clients, events.NewFakeRecorder(10), runtimes, Options{Clock: e.clock}), behind)
}

func reconcileOnce(t *testing.T, r *Reconciler, j *trainer.TrainJob) ctrl.Result {
	t.Helper()
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(j)})
	if err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	return result
}

// noIndex adds no index: it is for a second set of runtimes on a cache that already has the indexes.
type noIndex struct{}

func (noIndex) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

// TestCacheBehindBuildsNothing: a JobSet with a short TTL can be gone before the cache has the TrainJob's Complete.
func TestCacheBehindBuildsNothing(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	j := e.createJob(t, ns, "over")
	js := e.awaitJobSet(t, j)
	running := e.get(t, j)
	e.setJobSetStatus(t, j, jobSetCompleted())
	e.awaitConditions(t, j, complete)
	check.Must(t, e.Delete(t.Context(), js))
	e.fence(t, ns)
	e.reconcileBehind(t, running)
	if e.jobSetExists(t, j) {
		t.Error("a job that is over was started again")
	}
}

// TestConditionsOfOthersSurvive: a patch replaces the whole list of conditions.
func TestConditionsOfOthersSurvive(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	j := e.createJob(t, ns, "shared", suspend)
	e.awaitConditions(t, j, suspended)
	e.awaitJobSet(t, j)
	e.fence(t, ns)
	before := e.get(t, j)
	before.Status = trainer.TrainJobStatus{} // so that there is something to write
	current := e.get(t, j)
	theirs := metav1.Condition{Type: "QuotaReserved", Status: "True", Reason: "Admitted", Message: "by somebody else"}
	meta.SetStatusCondition(&current.Status.Conditions, theirs)
	check.Must(t, e.Status().Update(t.Context(), current))
	if result := e.reconcileBehind(t, before); result.RequeueAfter == 0 {
		t.Error("a conflict is to be tried again")
	}
	e.awaitConditions(t, j, suspended, theirs)
}

// createTimed creates a TrainJob and suspends and resumes it. The API server stamps the creation with its own clock,
// the controller stamps the resumption. So the fake clock measures the deadline.
func (e *environment) createTimed(t *testing.T, namespace, name string, limit time.Duration) *trainer.TrainJob {
	t.Helper()
	j := e.createJob(t, namespace, name, deadline(limit), suspend)
	e.awaitConditions(t, j, suspended)
	update(t, e, j, func(j *trainer.TrainJob) { j.Spec.Suspend = new(false) })
	e.awaitConditions(t, j, resumed)
	return j
}

func TestDeadlineFailsJobAndDeletesJobSet(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	j := e.createTimed(t, ns, "slow", time.Hour)
	js := e.awaitJobSet(t, j)
	other := e.createTimed(t, ns, "slower", 2*time.Hour)
	idle := e.createJob(t, ns, "idle", deadline(time.Hour), suspend)
	// A finalizer keeps the JobSet for a while.
	update(t, e, js, func(js *jobsetv1alpha2.JobSet) { js.Finalizers = []string{"example.com/slow"} })

	e.clock.SetTime(e.clock.Now().Add(time.Hour))
	for _, j := range []*trainer.TrainJob{j, other, idle} {
		e.touch(t, j)
	}
	e.awaitConditions(t, j, resumed, expired)
	eventually(t, "JobSet to be deleted", func(g gomega.Gomega) {
		g.Expect(e.Get(t.Context(), client.ObjectKeyFromObject(js), js)).To(gomega.Succeed())
		g.Expect(js.DeletionTimestamp).NotTo(gomega.BeNil())
	})
	update(t, e, js, func(js *jobsetv1alpha2.JobSet) { js.Finalizers = nil })
	e.fence(t, ns)
	if e.jobSetExists(t, j) {
		t.Error("the JobSet was built again")
	}
	e.awaitConditions(t, j, resumed, expired)
	e.awaitConditions(t, other, resumed)
	e.awaitConditions(t, idle, suspended)
}

func TestDeadlineStartsAnewOnResume(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	j := e.createTimed(t, ns, "interrupted", time.Hour)
	for range 2 { // Two times 50 minutes are more than an hour.
		e.clock.SetTime(e.clock.Now().Add(50 * time.Minute))
		update(t, e, j, func(j *trainer.TrainJob) { j.Spec.Suspend = new(true) })
		e.awaitConditions(t, j, suspended)
		update(t, e, j, func(j *trainer.TrainJob) { j.Spec.Suspend = new(false) })
		e.awaitConditions(t, j, resumed)
	}
	e.clock.SetTime(e.clock.Now().Add(time.Hour))
	e.touch(t, j)
	e.awaitConditions(t, j, resumed, expired)
}

// TestDeadlineIsWatched: only the deadline causes the next pass.
func TestDeadlineIsWatched(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	j := e.createTimed(t, ns, "short", time.Second)
	e.awaitJobSet(t, j)
	e.fence(t, ns)
	e.clock.SetTime(e.clock.Now().Add(2 * time.Second))
	e.awaitConditions(t, j, resumed, expired)
}

// TestDeadlineDeletesAgain: a process that wrote the condition may have died before it deleted the JobSet.
func TestDeadlineDeletesAgain(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	j := e.createJob(t, ns, "half-stopped")
	e.awaitJobSet(t, j)
	e.fence(t, ns)
	got := e.get(t, j)
	got.Status.Conditions = []metav1.Condition{at(expired, metav1.Now())}
	check.Must(t, e.Status().Update(t.Context(), got))
	eventually(t, "JobSet to go", func(g gomega.Gomega) { g.Expect(e.jobSetExists(t, j)).To(gomega.BeFalse()) })
}

// TestRuntimesOfSeveralClustersAtOnce: two concurrent calls of runtimecore.New can mix up their clients.
func TestRuntimesOfSeveralClustersAtOnce(t *testing.T) {
	e := env(t)
	made := make(chan map[string]trainerruntime.Runtime)
	for range 8 {
		go func() {
			runtimes, err := NewRuntimes(t.Context(), e.cached, noIndex{})
			if err != nil {
				t.Error(err)
			}
			made <- runtimes
		}()
	}
	for range 8 {
		if got := len(<-made); got != len(supported) {
			t.Errorf("got %d kinds of runtime, want %d", got, len(supported))
		}
	}
}

// TestCopySaysItsTrouble: a copy says in an annotation what keeps it from running, and only then. Other TrainJobs have
// no hub that reads it.
func TestCopySaysItsTrouble(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	copied := func(j *trainer.TrainJob) {
		j.Labels = map[string]string{v1alpha1.LabelHub: "hub", v1alpha1.LabelOriginUID: "origin"}
	}
	late := namespacedRuntime("late")
	local := e.createJob(t, ns, "local", late)
	sick := e.createJob(t, ns, "sick", late, copied)
	well := e.createJob(t, ns, "well", copied)
	e.awaitJobSet(t, well)
	eventually(t, "trouble of the copy", func(g gomega.Gomega) {
		trouble := trainjobs.TroubleOf(e.get(t, sick))
		g.Expect(trouble).NotTo(gomega.BeNil())
		g.Expect(trouble.Reason).To(gomega.Equal(ReasonRuntimeNotFound))
		g.Expect(trouble.Message).To(gomega.ContainSubstring(`"late" not found`))
	})
	before := e.get(t, sick).ResourceVersion
	e.fence(t, ns)
	check.Equal(t, before, e.get(t, sick).ResourceVersion, "the same trouble was written again")
	e.create(t, e.runtimeLike(t, ns, "late"))
	e.awaitJobSet(t, sick)
	eventually(t, "end of the trouble", func(g gomega.Gomega) {
		g.Expect(e.get(t, sick).Annotations).NotTo(gomega.HaveKey(v1alpha1.AnnotationStalled))
	})
	for _, j := range []*trainer.TrainJob{local, well} {
		for _, entry := range e.get(t, j).ManagedFields {
			if entry.Subresource == "" && entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Manager != j.ManagedFields[0].Manager {
				t.Errorf("%s was written by %s", j.Name, entry.Manager)
			}
		}
	}
}
