// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/test/check"
)

func getWorker(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	worker, err := world.dynamic.Resource(workers).Get(t.Context(), name, metav1.GetOptions{})
	check.Must(t, err)
	return worker
}

// wantSpec checks a WorkerCluster's spec. Its connection must not have changed.
func wantSpec(t *testing.T, name string, want map[string]any) {
	t.Helper()
	want["connection"] = map[string]any{"kubeconfigPath": "/kubeconfig"}
	want["capacity"] = "Pods"
	check.Diff(t, want, getWorker(t, name).Object["spec"], fmt.Sprintf("spec of %s", name))
}

// wantCall checks how a call has ended.
func wantCall(t *testing.T, c *call, code int, out, err string) {
	t.Helper()
	check.Equal(t, code, c.wait(t), "exit code")
	check.Diff(t, out, c.out.String(), "standard output")
	if got := c.err.String(); err == "" && got != "" || !strings.Contains(got, err) {
		t.Errorf("want %q on stderr, got %q", err, got)
	}
}

func TestCordonAndUncordon(t *testing.T) {
	namespace := setUp(t)
	hubWith(t, namespace)
	east, lost := namespace+"-east", namespace+"-lost"
	said := func(name, done string) string { return fmt.Sprintf("workercluster/%s %s\n", name, done) }
	wantCall(t, start(t, "cordon", east), 0, said(east, "cordoned"), "")
	wantSpec(t, east, map[string]any{"unschedulable": true})
	wantCall(t, start(t, "cordon", east, namespace+"-lst", lost), 1, said(east, "already cordoned")+said(lost, "cordoned"),
		fmt.Sprintf("error: there is no WorkerCluster %q on the hub of context", namespace+"-lst"))
	wantSpec(t, lost, map[string]any{"unschedulable": true})
	for _, manager := range getWorker(t, east).GetManagedFields() {
		if owned := manager.FieldsV1.GetRawString(); manager.Manager == "kubectl-trainyard" && owned != `{"f:spec":{"f:unschedulable":{}}}` {
			t.Errorf("the plugin owns %s", owned)
		}
	}
	wantCall(t, start(t, "uncordon", east, lost), 0, said(east, "uncordoned")+said(lost, "uncordoned"), "")
	wantSpec(t, east, map[string]any{})
	wantCall(t, start(t, "uncordon", east), 0, said(east, "already uncordoned"), "")
	wantCall(t, start(t, "cordon"), 1, "", "name a worker: kubectl trainyard cordon WORKER...")
	wantCall(t, start(t, "cordon", east, "--as="+namespace+"-user"), 1, "", `cannot get resource "workerclusters"`)
}

// drained has a worker with two jobs, and acts as the manager.
type drained struct {
	namespace, east string
}

func newDrained(t *testing.T) drained {
	t.Helper()
	namespace := setUp(t)
	hubWith(t, namespace)
	d := drained{namespace: namespace, east: namespace + "-east"}
	d.place(t, "waits", d.east, 1)
	return d
}

func (d drained) place(t *testing.T, name, worker string, attempt int) {
	t.Helper()
	patch(t, dispatches, d.namespace, name, fmt.Sprintf(`{"spec": {"cluster": %q, "attempt": %d, "eviction": null}}`, worker, attempt))
}

func (d drained) evict(t *testing.T, name string) {
	t.Helper()
	patch(t, dispatches, d.namespace, name, `{"spec": {"eviction": {"reason": "Drained", "message": "the worker is drained"}}}`)
}

func (d drained) stay(t *testing.T, name string) {
	t.Helper()
	patch(t, dispatches, d.namespace, name, `{"status": {"conditions": [{"type": "Evicting", "status": "False", "reason": "NoRoomElsewhere",
		"message": "lost: is not ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`, "status")
}

func (d drained) line(name, words string) string {
	return fmt.Sprintf("trainjob %s/%s %s\n", d.namespace, name, words)
}

func TestDrainIsSaid(t *testing.T) {
	d := newDrained(t)
	d.stay(t, "waits")
	jobs := d.line("runs", "waits for its turn") + d.line("waits", "stays: lost: is not ready")
	wantCall(t, start(t, "drain", d.east), 0, "workercluster/"+d.east+" draining\n"+jobs, `note: 2 jobs are on worker "`+d.east+`"`)
	wantSpec(t, d.east, map[string]any{"drain": true})
	wantCall(t, start(t, "drain", d.east), 0, "workercluster/"+d.east+" already draining\n"+jobs, "note: ")
	wantCall(t, start(t, "uncordon", d.east), 0, "workercluster/"+d.east+" uncordoned, its drain has ended\n", "")
	wantSpec(t, d.east, map[string]any{})
	lost := d.namespace + "-lost"
	wantCall(t, start(t, "drain", lost), 0, "workercluster/"+lost+" draining\nworkercluster/"+lost+" drained\n", "")
	wantCall(t, start(t, "drain", d.east, lost), 1, "", "name one worker: kubectl trainyard drain WORKER")
	wantCall(t, start(t, "drain", d.east, "--timeout=1s"), 1, "", "use it with --wait")
	wantCall(t, start(t, "drain", d.east, "--wait", "--timeout=-1s"), 1, "", "must not be negative")
	wantCall(t, start(t, "drain", d.namespace+"-eats"), 1, "", fmt.Sprintf("did you mean %q?", d.east))
	wantSpec(t, d.east, map[string]any{})
}

func TestDrainIsFollowed(t *testing.T) {
	d := newDrained(t)
	c := start(t, "drain", d.east, "--wait")
	out := "workercluster/" + d.east + " draining\n" + d.line("runs", "waits for its turn") + d.line("waits", "waits for its turn")
	c.awaitOut(t, out)
	d.evict(t, "runs")
	out += d.line("runs", "evicting: the worker is drained")
	c.awaitOut(t, out)
	d.place(t, "runs", d.namespace+"-lost", 2)
	out += d.line("runs", "moved to "+d.namespace+"-lost")
	c.awaitOut(t, out)
	check.Must(t, world.dynamic.Resource(dispatches).Namespace(d.namespace).Delete(t.Context(), "waits", metav1.DeleteOptions{}))
	wantCall(t, c, 0, out+d.line("waits", "was deleted")+"workercluster/"+d.east+" drained\n", "")
}

// TestDrainEndsWithJobsThatStay checks that --wait ends if all remaining jobs cannot move, with its exit code.
func TestDrainEndsWithJobsThatStay(t *testing.T) {
	d := newDrained(t)
	c := start(t, "drain", d.east, "--wait", "--timeout=1h")
	out := "workercluster/" + d.east + " draining\n" + d.line("runs", "waits for its turn") + d.line("waits", "waits for its turn")
	c.awaitOut(t, out)
	d.stay(t, "waits")
	out += d.line("waits", "stays: lost: is not ready")
	c.awaitOut(t, out)
	patch(t, workers, "", d.east, `{"status": {"conditions": [
		{"type": "Ready", "status": "False", "reason": "Unreachable", "message": "timeout", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`, "status")
	c.awaitErr(t, `note: worker "`+d.east+`" does not answer`)
	d.place(t, "runs", d.namespace+"-lost", 2)
	wantCall(t, c, 2, out+d.line("runs", "moved to "+d.namespace+"-lost"), `note: 1 job stays on worker "`+d.east+`" as things are`)
}

func TestDrainIsGivenUp(t *testing.T) {
	d := newDrained(t)
	c := start(t, "drain", d.east, "--wait", "--timeout=500ms")
	if code := c.wait(t); code != 1 || !strings.Contains(c.err.String(), "error: timed out, and the drain goes on") {
		t.Errorf("exit code %d, stderr %q", code, &c.err)
	}
	wantSpec(t, d.east, map[string]any{"drain": true})
	c = start(t, "drain", d.east, "--wait")
	c.awaitOut(t, "workercluster/"+d.east+" already draining\n"+d.line("runs", "waits for its turn")+d.line("waits", "waits for its turn"))
	check.Equal(t, 0, start(t, "uncordon", d.east).wait(t), "uncordon: exit code")
	if code := c.wait(t); code != 1 || !strings.Contains(c.err.String(), `error: the drain of worker "`+d.east+`" was ended by somebody else`) {
		t.Errorf("exit code %d, stderr %q", code, &c.err)
	}
	c = start(t, "drain", d.east, "--wait")
	c.awaitOut(t, "workercluster/"+d.east+" draining\n"+d.line("runs", "waits for its turn")+d.line("waits", "waits for its turn"))
	c.interrupt()
	if code := c.wait(t); code != 130 || c.err.String() != "" {
		t.Errorf("exit code %d, stderr %q", code, &c.err)
	}
}

// TestRightsOfAnOperator checks that the role of config/users is enough for all that a command can say.
func TestRightsOfAnOperator(t *testing.T) {
	d := newDrained(t)
	lost := d.namespace + "-lost"
	identify(t, lost)
	role, err := os.ReadFile("../../../../config/users/operator.yaml")
	check.Must(t, err)
	binding := strings.ReplaceAll(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NS-operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: trainyard-operator}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: NS-operator}]
`, "NS", d.namespace)
	check.Must(t, world.cluster.Apply(t.Context(), string(role), binding))
	file := filepath.Join(t.TempDir(), "job.yaml")
	const job = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: new}
spec: {runtimeRef: {name: fails}, trainer: {numNodes: 1}}
`
	check.Must(t, os.WriteFile(file, []byte(job), 0o600))
	as := "--as=" + d.namespace + "-operator"
	for _, args := range []string{
		"cordon " + d.east, "drain --wait " + lost, "uncordon " + d.east + " " + lost, "forget --yes " + lost, "adopt", "clusters",
		"queue -A -o wide", "explain urgent --namespace " + d.namespace, "simulate -f " + file, "drain " + d.east,
	} {
		c := start(t, append(strings.Fields(args), as)...)
		code := c.wait(t)
		if code == 2 && strings.HasPrefix(args, "simulate") {
			code = 0 // The job would have to wait.
		}
		if code != 0 || strings.Contains(c.err.String(), "you may not") {
			t.Errorf("%s: exit code %d, stderr %q", args, code, &c.err)
		}
	}
	quarantine(t, lost, d.namespace, "urgent")
	c := start(t, "adopt", lost, d.namespace+"/urgent", as)
	awaitDecision(t, lost, "urgent", "Adopt")
	d.place(t, "urgent", lost, 2)
	quarantine(t, lost, d.namespace)
	if code := c.wait(t); code != 0 {
		t.Errorf("adopt: exit code %d, stderr %q", code, &c.err)
	}
}
