// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// Trainyard nominates the one worker where a job fits, for every kind of job, and follows what happens to the job.
func TestNomination(t *testing.T) {
	f := newFederation(t)
	f.step(t, "OneClone", func(t *testing.T) {
		train := yard.Job{Namespace: fleet.Namespace, Name: "trainjob", GPUs: 4}.TrainJob()
		for _, job := range []client.Object{batchJob("job", 1, 4), jobSet("jobset", 1, 4), train, rayJob("rayjob", 4)} {
			workload := f.create(t, job)
			f.runs(t, job, f.east)
			if east, west := f.east.given(t, workload), f.west.given(t, workload); east != 1 || west != 0 {
				t.Errorf("%s was given to east %d times and to west %d times, want once and never", workload, east, west)
			}
			if note := f.told(t, workload, "Nominated"); !strings.Contains(note, f.east.name) {
				t.Errorf("the Event says %q", note)
			}
			f.remove(t, job, workload)
		}
	})
	f.step(t, "RoomIsCountedOnce", func(t *testing.T) {
		// Each of them takes a node of east. Nothing plays their pods, so only the nominations take the room.
		first, second, third := batchJob("first", 1, 8), batchJob("second", 1, 8), batchJob("third", 1, 8)
		workloads := map[client.Object]string{}
		for _, job := range []client.Object{first, second} {
			workloads[job] = f.create(t, job)
			f.runs(t, job, f.east)
		}
		waiting := f.create(t, third)
		if note := f.told(t, waiting, "NotNominated"); !strings.Contains(note, f.east.name) && !strings.Contains(note, f.west.name) {
			t.Errorf("the Event says %q", note)
		}
		f.remove(t, first, workloads[first])
		f.runs(t, third, f.east)
		check.Equal(t, 0, f.west.given(t, waiting), "west was given a job that does not fit there")
		f.remove(t, second, workloads[second])
		f.remove(t, third, waiting)
	})
	f.step(t, "WithdrawnOnRefusal", func(t *testing.T) {
		job := batchJob("refused", 1, 1)
		workload := f.refused(t, job)
		if note := f.told(t, workload, "NotAdmitted"); !strings.Contains(note, "stays nominated") {
			t.Errorf("the Event says %q", note)
		}
		f.cordon(t, f.west.name, false)
		f.runs(t, job, f.west)
		f.east.gone(t, workload)
		f.hold(t, f.east, "None")
		f.remove(t, job, workload)
	})
	f.step(t, "KueueRestartedBetweenNominationAndAdmission", func(t *testing.T) {
		job := batchJob("restarted", 1, 1)
		workload := f.refused(t, job)
		f.stopKueue(t)
		f.hold(t, f.east, "None")
		f.east.clone(t, workload, "admitted", admitted)
		f.startKueue(t)
		f.runs(t, job, f.east)
		f.cordon(t, f.west.name, false)
		f.remove(t, job, workload)
	})
	f.step(t, "AdmissionCrossesWithdrawal", func(t *testing.T) {
		job := batchJob("crossing", 1, 1)
		workload := f.refused(t, job)
		f.stopKueue(t)
		f.cordon(t, f.west.name, false)
		f.nominated(t, job.Name, f.west)
		check.Must(t, f.trainyard.Stop())
		f.hold(t, f.east, "None")
		f.east.clone(t, workload, "admitted", admitted)
		f.startKueue(t)
		// Kueue takes the worker that has admitted the job. It cannot record that, because this worker is not nominated.
		await(t, "have the job created on east", func(ctx context.Context) error {
			return f.east.Get(ctx, client.ObjectKeyFromObject(job), batchJob(job.Name, 1, 1))
		})
		f.logged(t, "when setting clusterName it must be one of the nominatedClusterNames")
		w, err := f.workload(t.Context(), job.Name)
		check.Must(t, err)
		if cluster, _, _ := unstructured.NestedString(w.Object, "status", "clusterName"); cluster != "" {
			t.Errorf("Kueue has given the job to %q, which nobody nominates", cluster)
		}
		check.Must(t, f.trainyard.Start(t.Context()))
		f.runs(t, job, f.east)
		f.remove(t, job, workload)
	})
	f.step(t, "Eviction", func(t *testing.T) {
		job := batchJob("evicted", 1, 4)
		workload := f.create(t, job)
		f.runs(t, job, f.east)
		f.activate(t, job.Name, false)
		await(t, "have the Workload evicted", func(ctx context.Context) error {
			w, err := f.workload(ctx, job.Name)
			if err == nil && (isTrue(w, "QuotaReserved") || !isTrue(w, "Evicted")) {
				err = errors.New("it is not")
			}
			return err
		})
		f.east.gone(t, workload)
		f.activate(t, job.Name, true)
		f.runs(t, job, f.east)
		if got := f.east.given(t, workload); got != 2 {
			t.Errorf("east was given %d clones, want one for each admission", got)
		}
		f.remove(t, job, workload)
	})
	f.step(t, "ManagerRestarted", func(t *testing.T) {
		first, second := batchJob("whole", 2, 8), batchJob("late", 1, 4)
		workload := f.create(t, first)
		f.runs(t, first, f.east)
		check.Must(t, f.trainyard.Stop())
		check.Must(t, f.trainyard.Start(t.Context()))
		waiting := f.create(t, second)
		f.told(t, waiting, "NotNominated")
		check.Equal(t, 0, f.east.given(t, waiting)+f.west.given(t, waiting),
			"a job was given room that another one has")
		f.remove(t, second, waiting)
		f.remove(t, first, workload)
	})
	f.step(t, "ClearingPolicy", func(t *testing.T) {
		f.installClearingPolicy(t)
		job := batchJob("cleared", 1, 4)
		workload := f.create(t, job)
		f.runs(t, job, f.east)
		f.activate(t, job.Name, false)
		f.east.gone(t, workload)
		f.activate(t, job.Name, true)
		f.runs(t, job, f.east)
		f.remove(t, job, workload)
	})
}

// Why a nomination is applied in Kueue's name, and names only clusters that MultiKueue can use.
func TestNominationOfAnotherManager(t *testing.T) {
	f := newFederation(t)
	check.Must(t, f.trainyard.Stop())
	t.Run("ClusterIsNotConnected", func(t *testing.T) {
		job := batchJob("nowhere", 1, 1)
		workload := f.create(t, job)
		f.nominate(t, job.Name, "somebody", "nowhere")
		f.logged(t, "no remote client for nominated cluster")
		f.remove(t, job, workload)
	})
	t.Run("KueueCannotTakeItOff", func(t *testing.T) {
		job := batchJob("stuck", 1, 1)
		workload := f.create(t, job)
		f.nominate(t, job.Name, "somebody", f.east.name)
		f.east.clone(t, workload, "admitted", admitted)
		f.logged(t, "clusterName and nominatedClusterNames are mutually exclusive")
		w, err := f.workload(t.Context(), job.Name)
		check.Must(t, err)
		if cluster, _, _ := unstructured.NestedString(w.Object, "status", "clusterName"); cluster != "" {
			t.Errorf("Kueue has given the job to %q", cluster)
		}
		// The policy of later versions helps.
		f.installClearingPolicy(t)
		f.runs(t, job, f.east)
	})
}

// nominate nominates a cluster for a job with quota, as a field manager.
func (f *federation) nominate(t *testing.T, job, manager, cluster string) {
	t.Helper()
	await(t, "nominate "+cluster+" for "+job, func(ctx context.Context) error {
		w, err := f.workload(ctx, job)
		if err != nil {
			return err
		}
		if !isTrue(w, "QuotaReserved") {
			return errors.New("it has no quota")
		}
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"status":{"nominatedClusterNames":[%q]}}`, cluster))
		return f.Status().Patch(ctx, w, patch, client.FieldOwner(manager))
	})
}

func admitted(w *unstructured.Unstructured) bool { return isTrue(w, "Admitted") }

// refused creates a job. east is nominated for it and does not admit it. west is cordoned.
func (f *federation) refused(t *testing.T, job client.Object) (workload string) {
	t.Helper()
	f.cordon(t, f.west.name, true)
	f.hold(t, f.east, "Hold")
	workload = f.create(t, job)
	f.nominated(t, job.GetName(), f.east)
	f.east.clone(t, workload, "refused", func(w *unstructured.Unstructured) bool {
		conditions, _, _ := unstructured.NestedSlice(w.Object, "status", "conditions")
		for _, c := range conditions {
			condition, _ := c.(map[string]any)
			if condition["type"] == "QuotaReserved" && condition["reason"] == "Inadmissible" {
				return true
			}
		}
		return false
	})
	return workload
}

// stopKueue stops the hub's Kueue, and takes its webhooks away, which would refuse every write.
func (f *federation) stopKueue(t *testing.T) {
	t.Helper()
	check.Must(t, f.kueue.Stop())
	check.Must(t, f.kueue.Pause(t.Context()))
}

func (f *federation) startKueue(t *testing.T) {
	t.Helper()
	check.Must(t, f.kueue.Resume(t.Context()))
	check.Must(t, f.kueue.Start(t.Context()))
}

// installClearingPolicy installs what later versions of Kueue may have on the hub: the API server itself takes the
// nomination off when the job gets a cluster or is evicted.
func (f *federation) installClearingPolicy(t *testing.T) {
	t.Helper()
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
		"metadata": map[string]any{"name": "test-clear-nominations"},
		"spec": map[string]any{
			"failurePolicy": "Fail", "reinvocationPolicy": "Never",
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{"kueue.x-k8s.io"}, "apiVersions": []any{"*"}, "resources": []any{"workloads/status"}, "operations": []any{"UPDATE"},
			}}},
			"matchConditions": []any{map[string]any{"name": "given-or-evicted", "expression": "has(object.status.nominatedClusterNames) && " +
				"(has(object.status.clusterName) || (has(object.status.conditions) && " +
				"object.status.conditions.exists(c, c.type == 'Evicted' && c.status == 'True')))"}},
			"mutations": []any{map[string]any{"patchType": "JSONPatch", "jsonPatch": map[string]any{
				"expression": "[JSONPatch{op: 'remove', path: '/status/nominatedClusterNames'}]",
			}}},
		},
	}}
	check.Must(t, f.Create(t.Context(), policy))
	check.Must(t, f.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
		"metadata": map[string]any{"name": "test-clear-nominations"}, "spec": map[string]any{"policyName": "test-clear-nominations"},
	}}))
}

// bin has the programs of make build and make controlplane.
const bin = "../../../../bin"

// TestCutOver takes over the worker of MultiKueue, and follows the printed steps to Trainyard and back.
func TestCutOver(t *testing.T) {
	h := newHub(t, 1)
	h.submit(t, "first", h.queue)
	h.kueues.gets(t, "first")
	h.resumed(t, "first")
	h.waits(t, "first", v1alpha1.ReasonManagedByMultiKueue)

	out := h.shell(t, "kubectl-trainyard import multikueue")
	h.waits(t, "first", v1alpha1.ReasonManagedByMultiKueue)
	h.follow(t, out, "To Trainyard:", func() {
		h.submit(t, "second", h.queue) // It waits until the queue is started again.
		h.activate(t, "first", false)
	})
	await(t, "have the job that waited placed on the worker of MultiKueue", func(ctx context.Context) error {
		d, err := h.dispatch(ctx, "second")
		if err == nil && d.Spec.Cluster == "" {
			err = fmt.Errorf("it waits: %+v", d.Status.Conditions)
		}
		return err
	})
	h.kueues.gets(t, "second")

	out = h.shell(t, "kubectl-trainyard import multikueue")
	h.follow(t, out, "Back to MultiKueue:", func() {
		h.submit(t, "third", h.queue)
		h.activate(t, "second", false)
	})
	h.kueues.gets(t, "third")
	h.waits(t, "third", v1alpha1.ReasonManagedByMultiKueue)
	for _, job := range []string{"first", "second", "third"} {
		if copies, others := h.kueues.created(t, job), h.ours.created(t, job); copies != 1 || others != 0 {
			t.Errorf("the worker of MultiKueue was given %d copies of %s, and the other worker %d", copies, job, others)
		}
	}
}

// follow runs the printed commands after a title, and calls stopped after the command that stops the queue.
func (h *hub) follow(t *testing.T, out, title string, stopped func()) {
	t.Helper()
	_, steps, found := strings.Cut(out, title)
	if !found {
		t.Fatalf("no steps %q in:\n%s", title, out)
	}
	for i, line := range strings.Split(steps, "\n") {
		command, isCommand := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		switch {
		case isCommand:
			h.shell(t, command)
			if strings.Contains(command, `"stopPolicy":"Hold"`) {
				stopped()
			}
		case i > 0 && strings.HasSuffix(line, ":"):
			return // The next title.
		}
	}
}

// shell runs a command for the hub, and returns its standard output. Exit code 2 says that something is left to do.
func (h *hub) shell(t *testing.T, command string) string {
	t.Helper()
	programs, err := filepath.Abs(bin)
	check.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	script := exec.CommandContext(ctx, "bash", "-c", command)
	script.Env = append(os.Environ(), "KUBECONFIG="+h.cluster.Cluster.KubeconfigPath, "PATH="+programs+":"+os.Getenv("PATH"))
	out, err := script.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) && failed.ExitCode() != 2 {
		t.Fatalf("%s: %v: %s", command, err, failed.Stderr)
	}
	return string(out)
}
