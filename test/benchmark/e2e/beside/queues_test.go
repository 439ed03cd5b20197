// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/kueue"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/trainyard"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// teamQueue is the LocalQueue that the policy names.
const teamQueue = "team"

// behind is a hub whose two workers have a Kueue each. All jobs come into the queue of the team, on the first worker if
// it takes them.
type behind struct {
	*hub
	first, second *worker
}

func newBehind(t *testing.T) *behind {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	all, err := fleet.Start(ctx, fleet.Options{Workers: 2})
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, all.Stop()) })
	k := kueue.New(all, kueue.Tuning{Groups: 1, Integrations: kueue.Tuned().Integrations})
	check.Must(t, k.Install(ctx))
	check.Must(t, k.Start(ctx))
	check.Must(t, k.Connected(ctx))
	y, err := trainyard.On(all, trainyard.Options{})
	check.Must(t, err)
	check.Must(t, y.Install(ctx))
	b := &behind{
		hub:   &hub{Client: all.Hub.Admin, cluster: all.Hub, queue: k.Labels()[0][v1alpha1.LabelLocalQueue]},
		first: newWorker(all.Workers[0]), second: newWorker(all.Workers[1]),
	}
	check.Must(t, b.Create(t.Context(), &v1alpha1.DispatchPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: teamQueue},
		Spec: v1alpha1.DispatchPolicySpec{
			Priority: 10, WorkerQueue: teamQueue,
			Scoring: []v1alpha1.Score{{
				Name:  v1alpha1.ScorePreference,
				Order: []v1alpha1.ClusterName{v1alpha1.ClusterName(b.first.name), v1alpha1.ClusterName(b.second.name)},
			}},
		},
	}))
	check.Must(t, y.Start(ctx))
	check.Must(t, y.Connected(ctx))
	return b
}

// If a worker lacks what a copy needs to be queued, it refuses the copy, and the next worker is tried. If a copy waits
// in a queue, its Dispatch says what for, in Kueue's words.
func TestQueuesOfWorkers(t *testing.T) {
	b := newBehind(t)
	b.createTeam(t, b.second, "1")
	t.Run("NoLocalQueue", func(t *testing.T) {
		b.submitJob(t, "first", 1, "")
		b.refuses(t, "first", b.first, "LocalQueue team doesn't exist")
		b.runs(t, "first", b.second)
	})
	t.Run("Full", func(t *testing.T) {
		b.submitJob(t, "second", 1, "")
		b.refuses(t, "second", b.first, "LocalQueue team doesn't exist")
		b.says(t, "second", v1alpha1.ReasonWaitingForQuota, "insufficient unused quota for nvidia.com/gpu in flavor default, 1 more needed")
		b.quiet(t, "second", b.second)
	})
	t.Run("TooLarge", func(t *testing.T) {
		b.submitJob(t, "large", 2, "")
		b.refuses(t, "large", b.first, "LocalQueue team doesn't exist")
		b.refuses(t, "large", b.second, "> maximum capacity (1)")
		check.Must(t, b.Delete(t.Context(), yard.Job{Namespace: fleet.Namespace, Name: "large"}.TrainJob()))
	})
	t.Run("Room", func(t *testing.T) {
		check.Must(t, b.second.Patch(t.Context(), kueueObject("ClusterQueue", "", teamQueue), quotaPatch("8")))
		b.runs(t, "second", b.second)
	})
	t.Run("NoPriorityClass", func(t *testing.T) {
		b.createTeam(t, b.first, "8")
		class := kueueObject("WorkloadPriorityClass", "", "urgent")
		class.Object["value"] = int64(1000)
		check.Must(t, b.second.Create(t.Context(), class))
		b.submitJob(t, "urgent", 1, "urgent")
		b.refuses(t, "urgent", b.first, "the worker has no WorkloadPriorityClass urgent")
		b.runs(t, "urgent", b.second)
	})
	// A job that has its queue keeps it, and the next job gets another queue.
	t.Run("OtherQueue", func(t *testing.T) {
		b.setQueue(t, b.first.name, v1alpha1.WorkerQueueNone)
		b.submitJob(t, "free", 1, "")
		b.first.gets(t, "free")
		copy, err := get(t.Context(), b.first, "free")
		check.Must(t, err)
		if queue, has := copy.GetLabels()[v1alpha1.LabelLocalQueue]; has {
			t.Errorf("the copy is in queue %q", queue)
		}
		b.runs(t, "urgent", b.second)
	})
}

func quotaPatch(gpus string) client.Patch {
	return client.RawPatch("application/json-patch+json", fmt.Appendf(nil,
		`[{"op":"replace","path":"/spec/resourceGroups/0/flavors/0/resources/2/nominalQuota","value":%q}]`, gpus))
}

// createTeam creates the team's queues on a worker. Only their GPUs differ from MultiKueue's queues.
func (b *behind) createTeam(t *testing.T, w *worker, gpus string) {
	t.Helper()
	model := kueueObject("ClusterQueue", "", b.hub.queue)
	check.Must(t, w.Get(t.Context(), client.ObjectKeyFromObject(model), model))
	cluster, local := kueueObject("ClusterQueue", "", teamQueue), kueueObject("LocalQueue", fleet.Namespace, teamQueue)
	cluster.Object["spec"], local.Object["spec"] = model.Object["spec"], map[string]any{"clusterQueue": teamQueue}
	check.Must(t, w.Create(t.Context(), cluster))
	check.Must(t, w.Patch(t.Context(), cluster, quotaPatch(gpus)))
	check.Must(t, w.Create(t.Context(), local))
}

// submitJob creates a TrainJob that is in no queue of the hub.
func (b *behind) submitJob(t *testing.T, name string, gpus int64, class string) {
	t.Helper()
	job := yard.Job{Namespace: fleet.Namespace, Name: name, GPUs: gpus}.TrainJob()
	if class != "" {
		job.Labels = map[string]string{v1alpha1.LabelWorkloadPriorityClass: class}
	}
	await(t, "create job "+name, func(ctx context.Context) error { return b.Create(ctx, job.DeepCopy()) })
}

// refuses waits until a worker has refused a job, in these words.
func (b *behind) refuses(t *testing.T, name string, w *worker, words string) {
	t.Helper()
	await(t, "have job "+name+" refused by "+w.name, func(ctx context.Context) error {
		// The clusters have no garbage collector.
		if job, err := get(ctx, w, name); err == nil && job.GetDeletionTimestamp() != nil {
			return b.collected(ctx, w, name)
		}
		d, err := b.dispatch(ctx, name)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(d.Status.Refusals, func(r v1alpha1.Refusal) bool { return string(r.Cluster) == w.name })
		if at < 0 || !strings.Contains(d.Status.Refusals[at].Message, words) {
			return fmt.Errorf("its refusals are %+v; it is on %q: %s/%s", d.Status.Refusals, d.Spec.Cluster, d.Status.Phase, d.Status.Reason)
		}
		return nil
	})
}

// runs waits until the Kueue of a worker lets the copy of a job run, in the queue of the team.
func (b *behind) runs(t *testing.T, name string, w *worker) {
	t.Helper()
	await(t, "have the copy of "+name+" admitted on "+w.name, func(ctx context.Context) error {
		copy, err := get(ctx, w, name)
		if err == nil && (trainjobs.Suspended(copy) || copy.GetLabels()[v1alpha1.LabelLocalQueue] != teamQueue) {
			err = fmt.Errorf("it is suspended: %t; labels %v", trainjobs.Suspended(copy), copy.GetLabels())
		}
		return err
	})
}

// says waits until the Dispatch of a job that is queued quotes Kueue.
func (b *behind) says(t *testing.T, name, reason, words string) {
	t.Helper()
	await(t, "have the Dispatch of "+name+" quote Kueue", func(ctx context.Context) error {
		d, err := b.dispatch(ctx, name)
		if err != nil {
			return err
		}
		mirrored := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchMirrored)
		if mirrored == nil || d.Status.Phase != v1alpha1.PhaseQueued || d.Status.Reason != reason || !strings.Contains(mirrored.Message, words) {
			return fmt.Errorf("it says %s/%s: %+v", d.Status.Phase, d.Status.Reason, mirrored)
		}
		return nil
	})
}

// quiet expects that nobody fights about a copy that waits.
func (b *behind) quiet(t *testing.T, name string, w *worker) {
	t.Helper()
	copy, err := get(t.Context(), w, name)
	check.Must(t, err)
	if generation := copy.GetGeneration(); generation > writesOfAdmission {
		t.Errorf("the copy of %s has generation %d", name, generation)
	}
}

// flavors lets a policy propagate the flavors of Kueue: a job waits for nodes with their labels before Kueue resumes
// the job, and its copy gets what Kueue has written into the job.
func (g *gate) flavors(t *testing.T) {
	t.Helper()
	policy := &v1alpha1.DispatchPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "flavors"},
		Spec:       v1alpha1.DispatchPolicySpec{HubFlavors: v1alpha1.HubFlavorsPropagate},
	}
	check.Must(t, g.Create(t.Context(), policy))
	flavor := kueueObject("ResourceFlavor", "", "any-worker")
	g.patch(t, flavor, `{"spec":{"nodeLabels":{"gpu":"h100"},"tolerations":[{"key":"spot","operator":"Exists"}]}}`)
	job := teamJob{team: "team-a", name: "flavored", gpus: 8}
	g.submit(t, job)
	g.checked(t, job, "Pending", "NoFit")
	g.patchNodes(t, `{"metadata":{"labels":{"gpu":"h100"}}}`)
	g.runs(t, job, 1)

	onHub, copy := trainjobs.New(), trainjobs.New()
	check.Must(t, g.Get(t.Context(), job.key(), onHub))
	check.Must(t, g.worker.Get(t.Context(), job.key(), copy))
	typed, err := trainjobs.Typed(onHub)
	check.Must(t, err)
	want := trainjobs.KueueFlavors(typed)
	typed, err = trainjobs.Typed(copy)
	check.Must(t, err)
	sent := typed.Spec.RuntimePatches
	if len(sent) == 0 {
		t.Fatal("the copy has no runtimePatches")
	}
	last := sent[len(sent)-1]
	last.Time = nil
	if diff := cmp.Diff(want, &last); want == nil || diff != "" {
		t.Errorf("the flavors of the copy (-of Kueue's entry +got):\n%s", diff)
	}
	d, err := g.dispatch(t.Context(), job)
	check.Must(t, err)
	node := want.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
	check.Diff(t, node.NodeSelector, d.Spec.PodSets[0].NodeSelector,
		"the node selector for which room was held (-of Kueue's entry +got)")
	check.Diff(t, node.Tolerations, d.Spec.PodSets[0].Tolerations,
		"the tolerations for which room was held (-of Kueue's entry +got)")

	g.remove(t, job)
	g.patchNodes(t, `{"metadata":{"labels":{"gpu":null}}}`)
	g.patch(t, flavor, `{"spec":{"nodeLabels":null,"tolerations":null}}`)
	check.Must(t, g.Delete(t.Context(), policy))
}

// patchNodes changes all nodes of the worker.
func (g *gate) patchNodes(t *testing.T, change string) {
	t.Helper()
	await(t, "change the nodes", func(ctx context.Context) error {
		var nodes corev1.NodeList
		if err := g.worker.List(ctx, &nodes); err != nil {
			return err
		}
		patch := client.RawPatch("application/merge-patch+json", []byte(change))
		for i := range nodes.Items {
			if err := g.worker.Patch(ctx, &nodes.Items[i], patch); err != nil {
				return err
			}
		}
		return nil
	})
}

// The hub's Kueue takes its quota back from a job whose pods are not ready in time, as no worker has room for them. It
// sees in the status of the copy that pods are ready.
func TestPodsReadyTimeout(t *testing.T) {
	h := newHub(t, 1, func(tuning *kueue.Tuning) { tuning.PodsReadyTimeout = 15 * time.Second })
	h.createQueue(t, "gate")
	h.cordon(t, h.ours.name, true)
	h.submit(t, "late", "gate")
	h.resumed(t, "late")
	h.waits(t, "late", v1alpha1.ReasonNoFit)
	h.evicted(t, "late")
	h.waits(t, "late", v1alpha1.ReasonSuspended)
	h.cordon(t, h.ours.name, false)
	h.ours.gets(t, "late")
	h.ours.makeReady(t, "late")
	h.ready(t, "late")
	h.showsNoSuspension(t, "late")
	// A later job that is not ready is evicted. So the time of the first job is over too.
	h.submit(t, "never", "gate")
	h.ours.gets(t, "never")
	h.evicted(t, "never")
	h.ready(t, "late")
	d, err := h.dispatch(t.Context(), "late")
	check.Must(t, err)
	if d.Spec.Cluster == "" || d.Spec.Attempt != 1 {
		t.Errorf("the job is on %q in attempt %d", d.Spec.Cluster, d.Spec.Attempt)
	}
}

// evicted waits until the hub's Kueue has taken the quota of a job back.
func (h *hub) evicted(t *testing.T, job string) {
	t.Helper()
	await(t, "have the hub's Kueue evict "+job, func(ctx context.Context) error {
		workload, err := h.workload(ctx, job)
		if err == nil && (!isTrue(workload, "Evicted") || isTrue(workload, "QuotaReserved")) {
			err = fmt.Errorf("its status is %v", workload.Object["status"])
		}
		return err
	})
}

// showsNoSuspension checks that a job that Kueue has resumed has no condition Suspended, which clients take for its
// state.
func (h *hub) showsNoSuspension(t *testing.T, job string) {
	t.Helper()
	stored, err := get(t.Context(), h, job)
	check.Must(t, err)
	conditions, _, err := unstructured.NestedSlice(stored.Object, "status", "conditions")
	check.Must(t, err)
	for _, condition := range conditions {
		if fields, _ := condition.(map[string]any); fields["type"] == "Suspended" {
			t.Errorf("the job runs, and has the condition %v", fields)
		}
	}
}

// ready waits until the hub's Kueue says that the pods of a job are ready.
func (h *hub) ready(t *testing.T, job string) {
	t.Helper()
	await(t, "have the pods of "+job+" ready for the hub's Kueue", func(ctx context.Context) error {
		workload, err := h.workload(ctx, job)
		if err == nil && !isTrue(workload, "PodsReady") {
			err = errors.New("they are not")
		}
		return err
	})
}

// makeReady plays the pods of a copy.
func (w *worker) makeReady(t *testing.T, job string) {
	t.Helper()
	copied, err := get(t.Context(), w, job)
	check.Must(t, err)
	check.Must(t, w.Status().Patch(t.Context(), copied, client.RawPatch("application/merge-patch+json", []byte(
		`{"status":{"jobsStatus":[{"name":"node","active":1,"ready":1,"succeeded":0,"failed":0,"suspended":0}]}}`))))
}
