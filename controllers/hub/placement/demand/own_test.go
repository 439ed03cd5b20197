// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetapply "sigs.k8s.io/jobset/client-go/applyconfiguration/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/check"
)

// ownSpec is the spec of a worker's runtime.
func ownSpec(t testing.TB, text string) *dispatch.RuntimeSpec {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	check.Must(t, err)
	return &dispatch.RuntimeSpec{Digest: fmt.Sprintf("%x", data), JSON: data}
}

func ownJob(changes ...func(*trainer.TrainJob)) *trainer.TrainJob {
	job := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "job"}}
	job.Spec.RuntimeRef.Name = "torch"
	for _, change := range changes {
		change(job)
	}
	runtimeKey(job)
	return job
}

// The pods of a job on a worker are those that the worker's runtime makes. Workers with one runtime share them, and a
// runtime with which the job cannot run has words and no pods.
func TestOwnDemand(t *testing.T) {
	d := newTestDeriver(t)
	four := func(job *trainer.TrainJob) { job.Spec.Trainer = &trainer.Trainer{NumNodes: new(int32(4))} }
	different := ownSpec(t, tuned)
	runtimes := &dispatch.OwnRuntimes{On: map[v1alpha1.ClusterName]dispatch.Comparison{
		"tuned": {Own: different}, "tuned-too": {Own: ownSpec(t, tuned)}, "mpi": {Own: ownSpec(t, mpi)},
		"overflowing": {Own: ownSpec(t, overflowing)}, "flux": {Own: ownSpec(t, flux)},
		"unreadable": {Own: &dispatch.RuntimeSpec{Digest: "x", JSON: []byte(`{"template": []}`)}},
		"empty":      {Own: &dispatch.RuntimeSpec{Digest: "y", JSON: []byte(`null`)}},
		"outdated":   {Own: different, Outdated: true},
	}}
	own, err := d.own(ownJob(four), runtimes, nil)
	check.Must(t, err)

	made := own.On("tuned")
	if made == nil || made != own.On("tuned-too") || made.Digest != different.Digest || made.Runtime != `ClusterTrainingRuntime "torch"` {
		t.Fatalf("the demand on two workers with one runtime is %+v and %+v", made, own.On("tuned-too"))
	}
	check.Diff(t, []v1alpha1.PodSet{
		{Name: "dataset-initializer", Role: "dataset-initializer", Count: 1, Requests: list("cpu", "2")},
		{Name: "node", Role: "trainer", Count: 4, Requests: list("nvidia.com/gpu", "2", "memory", "1Gi", "cpu", "500m")},
	}, made.PodSets, "PodSets")
	sets := own.On("mpi").PodSets
	if len(sets) != 2 || sets[0].Name != "launcher" || sets[0].Count+sets[1].Count != 4 {
		t.Errorf("the PodSets of the MPI runtime are %+v", sets)
	}
	for worker, words := range map[v1alpha1.ClusterName]string{
		"overflowing": "the job is too large", "unreadable": "the hub cannot read its spec",
	} {
		if got := own.On(worker); got == nil || !strings.Contains(got.Fault, words) || got.PodSets != nil {
			t.Errorf("the demand on %s is %+v, want a fault with %q", worker, got, words)
		}
	}
	if got := own.On("outdated"); got != nil {
		t.Errorf("a runtime that is replaced before the copy comes makes %+v", got)
	}
	kept := &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{Propagate: &v1alpha1.Propagation{Runtimes: ptr.To(false)}}}
	own, err = d.own(ownJob(four), runtimes, kept)
	check.Must(t, err)
	if got := own.On("outdated"); got == nil || got.Fault != "" {
		t.Errorf("nobody may replace the runtime, and it makes %+v", got)
	}
}

// Nothing is derived for each job: jobs that differ only in what changes no pods share a demand, as long as no runtime
// changes, and another runtime is derived alone.
func TestOwnDemandIsShared(t *testing.T) {
	d := newTestDeriver(t)
	of := func(runtimes *dispatch.OwnRuntimes, changes ...func(*trainer.TrainJob)) *dispatch.OwnDemand {
		t.Helper()
		own, err := d.own(ownJob(changes...), runtimes, nil)
		check.Must(t, err)
		return own
	}
	runtimes := &dispatch.OwnRuntimes{On: map[v1alpha1.ClusterName]dispatch.Comparison{"east": {Own: ownSpec(t, torch)}}}
	run := func(id string) func(*trainer.TrainJob) {
		return func(job *trainer.TrainJob) {
			job.Name, job.Labels, job.Spec.Suspend = id, map[string]string{"run": id}, new(id == "b")
			job.Spec.Trainer = &trainer.Trainer{Image: &id, Command: []string{id}, Args: []string{id}, Env: []corev1.EnvVar{{Name: "RUN", Value: id}}}
			job.Spec.Initializer = &trainer.Initializer{Dataset: &trainer.DatasetInitializer{StorageUri: new("s3://" + id)}}
			job.Spec.RuntimePatches = []trainer.RuntimePatch{{Manager: "x", Time: ptr.To(metav1.NewTime(time.Unix(int64(len(id)), 0)))}}
		}
	}
	first := of(runtimes, run("a"))
	if of(runtimes, run("b")) != first || of(runtimes, run("long")) != first {
		t.Error("jobs of one kind do not share a demand")
	}
	larger := of(runtimes, run("a"), func(job *trainer.TrainJob) { job.Spec.Trainer.NumNodes = new(int32(7)) })
	check.Equal(t, int32(7), larger.On("east").PodSets[0].Count, "pods of a job with more nodes")
	changed := &dispatch.OwnRuntimes{On: map[v1alpha1.ClusterName]dispatch.Comparison{"east": runtimes.On["east"], "west": {Own: ownSpec(t, tuned)}}}
	next := of(changed, run("a"))
	if next.On("east") != first.On("east") || next.On("west") == nil {
		t.Errorf("another worker's runtime has changed, and the demand on east is made anew: %+v", next.On("east"))
	}
	of(runtimes, run("a"))
	for _, known := range d.owned.demands {
		if len(known.variants) > 1 {
			t.Errorf("%d variants are kept for a kind of jobs, and there is one runtime", len(known.variants))
		}
	}
}

// Pods get the grace period of the policy only if the worker's runtime gives them none.
func TestOwnDemandHasGrace(t *testing.T) {
	d := newTestDeriver(t)
	policy := &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{Checkpoint: &v1alpha1.Checkpointing{Grace: &metav1.Duration{Duration: 2 * time.Minute}}}}
	graceful := strings.Replace(torch, "nodeSelector:", "terminationGracePeriodSeconds: 30, nodeSelector:", 1)
	own, err := d.own(ownJob(), &dispatch.OwnRuntimes{On: map[v1alpha1.ClusterName]dispatch.Comparison{
		"east": {Own: ownSpec(t, torch)}, "west": {Own: ownSpec(t, graceful)},
	}}, policy)
	check.Must(t, err)
	check.Diff(t, &v1alpha1.PodGrace{Seconds: 120, PodSets: []string{"node"}}, own.On("east").Grace, "grace on east")
	check.Equal(t, int64(120), *own.On("east").PodSets[0].TerminationGracePeriodSeconds, "grace of the pods on east")
	check.Equal(t, int64(30), *own.On("west").PodSets[0].TerminationGracePeriodSeconds, "grace of the pods on west")
	if own.On("west").Grace != nil {
		t.Errorf("the policy gives pods %+v, which have a grace period", own.On("west").Grace)
	}
}

// inconsistent is a framework that does not say how many pods there are.
type inconsistent struct{ trainerruntime.Runtime }

func (inconsistent) RuntimeInfo(*trainer.TrainJob, any, *trainer.MLPolicy, *trainer.PodGroupPolicy) (*trainerruntime.Info, error) {
	return trainerruntime.NewInfo(trainerruntime.WithTemplateSpecObjApply(
		jobsetapply.JobSetSpec().WithReplicatedJobs(jobsetapply.ReplicatedJob().WithName("node").WithTemplate(nil)))), nil
}

// A panic over the runtime of a worker concerns jobs on workers with that runtime. Nobody else hears of it.
func TestPanicOverAnOwnRuntime(t *testing.T) {
	d := newTestDeriver(t)
	job := ownJob()
	d.runtimes[trainerruntime.RuntimeRefToRuntimeRegistryKey(job.Spec.RuntimeRef)] = inconsistent{}
	own, err := d.own(job, &dispatch.OwnRuntimes{On: map[v1alpha1.ClusterName]dispatch.Comparison{"east": {Own: ownSpec(t, torch)}}}, nil)
	check.Must(t, err)
	if got := own.On("east"); got == nil || !strings.Contains(got.Fault, "because of a fault of Trainyard") {
		t.Errorf("after a panic the demand is %+v", got)
	}
}
