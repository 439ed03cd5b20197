// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/check"
)

// quarantine sets the unknown copies in a worker's status, possibly none.
func quarantine(t *testing.T, worker, namespace string, names ...string) {
	t.Helper()
	list := []string{}
	for _, name := range names {
		list = append(list, fmt.Sprintf(`{"namespace": %q, "name": %q, "uid": "uid-of-%s", "originUID": "origin", "attempt": 2}`, namespace, name, name))
	}
	patch(t, workers, "", worker, fmt.Sprintf(`{"status": {"unknownCopies": [%s], "conditions": [{"type": "UnknownCopies", "status": "True",
		"reason": "Quarantined", "message": "the hub's words", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`, strings.Join(list, ",")), "status")
}

// awaitDecision waits until a WorkerCluster has a decision about a copy.
func awaitDecision(t *testing.T, worker, name, want string) {
	t.Helper()
	eventually(t, "decision "+want, func(g gomega.Gomega) { g.Expect(decision(t, worker, name)).To(gomega.Equal(want)) })
}

func decision(t *testing.T, worker, name string) string {
	t.Helper()
	return getWorker(t, worker).GetAnnotations()["decision.trainyard.dev/uid-of-"+name]
}

func TestDecisionsAboutUnknownCopies(t *testing.T) {
	namespace := setUp(t)
	hubWith(t, namespace)
	east := namespace + "-east"
	tests := map[string]struct {
		reason string
		args   string
		name   string
		// decided is the decision that is written. Then the manager does this.
		decided string
		manager func()
		out     string
		wantErr string
	}{
		"Adopt": {
			reason: "the job waits, and gets the copy", args: "adopt", name: "waits", decided: "Adopt",
			manager: func() {
				patch(t, dispatches, namespace, "waits", fmt.Sprintf(`{"spec": {"cluster": %q, "attempt": 3}}`, east))
				quarantine(t, east, namespace)
			},
			out: fmt.Sprintf("trainjob %s/waits adopted: it is on worker %s, attempt 3\n", namespace, east),
		},
		"NotAdopted": {
			reason: "the copy has gone meanwhile", args: "adopt", name: "urgent", decided: "Adopt",
			manager: func() { quarantine(t, east, namespace) }, wantErr: "was not adopted: its job is waiting",
		},
		"Release": {
			reason: "it is the worker's", args: "release", name: "waits", decided: "Release",
			manager: func() { quarantine(t, east, namespace) },
			out:     fmt.Sprintf("trainjob %s/waits released: it is one of worker %s's own now, and runs on\n", namespace, east),
		},
		"Delete": {
			reason: "it goes; a job on the hub is not needed", args: "release --delete", name: "nobodys", decided: "Delete",
			manager: func() { quarantine(t, east, namespace) },
			out:     fmt.Sprintf("trainjob %s/nobodys deleted on worker %s\n", namespace, east),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			quarantine(t, east, namespace, tc.name, "zebra")
			c := start(t, append(strings.Fields(tc.args), east, namespace+"/"+tc.name)...)
			awaitDecision(t, east, tc.name, tc.decided)
			check.Equal(t, "", c.out.String(), "it is said to be done before it is: %s", &c.out)
			tc.manager()
			code := 0
			if tc.wantErr != "" {
				code = 1
			}
			wantCall(t, c, code, tc.out, tc.wantErr)
			if left := decision(t, east, tc.name); left != "" {
				t.Errorf("%s: the decision %q is left behind", tc.reason, left)
			}
		})
	}
}

// tell records the manager's message about a decision.
func tell(t *testing.T, worker, name, message string) {
	t.Helper()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: worker + "." + name},
		InvolvedObject: corev1.ObjectReference{Kind: "WorkerCluster", Name: worker}, Reason: "DecisionNotCarriedOut", Message: message,
	}
	if _, err := world.kubernetes.CoreV1().Events("default").Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestUnknownCopiesAreListed(t *testing.T) {
	namespace := setUp(t)
	hubWith(t, namespace)
	east := namespace + "-east"
	wantCall(t, start(t, "adopt", east), 0, "", "There are no copies that the hub has no record of.")
	quarantine(t, east, namespace, "waits", "runs", "urgent")
	for _, command := range []string{"adopt", "release"} {
		for _, args := range [][]string{{command}, {command, east}} {
			c := start(t, append(args, "--no-headers")...)
			if code := c.wait(t); code != 0 || strings.Count(c.out.String(), "\n") != 3 || !strings.Contains(c.out.String(), east+"   "+namespace+"   urgent   2     <none>") {
				t.Errorf("%v: exit code %d:\n%s%s", args, code, &c.out, &c.err)
			}
		}
	}
	c := start(t, "clusters", east)
	if code := c.wait(t); code != 0 || !strings.Contains(c.err.String(), "adopt "+east+" prints 3 of them") {
		t.Errorf("clusters: exit code %d:\n%s", code, &c.err)
	}
	complete := start(t, "__complete", "adopt", east, namespace+"/u")
	complete.wait(t)
	check.Diff(t, namespace+"/urgent\n:4\n", complete.out.String(), "completion")
}

func TestDecisionsThatCannotBe(t *testing.T) {
	namespace := setUp(t)
	hubWith(t, namespace)
	east := namespace + "-east"
	quarantine(t, east, namespace, "waits", "nobodys")
	tell(t, east, "latest", "the latest words about uid-of-waits")
	tell(t, east, "other", "words about uid-of-another")
	tests := map[string]struct {
		reason  string
		args    []string
		wantErr string
		decided string
	}{
		"NoSuchCopy": {reason: "the nearest is named", args: []string{"adopt", east, namespace + "/wait"}, wantErr: fmt.Sprintf("(did you mean %q?)", namespace+"/waits")},
		"NoSuchJob":  {reason: "nothing to adopt it for", args: []string{"adopt", east, namespace + "/nobodys"}, wantErr: "create it first"},
		"NoKey":      {reason: "not a name", args: []string{"adopt", east, "a/b/c"}, wantErr: `"a/b/c" is not NAMESPACE/NAME`},
		"TooMany":    {reason: "one at a time", args: []string{"release", east, "a/b", "a/c"}, wantErr: "name one copy: kubectl trainyard release WORKER NAMESPACE/NAME"},
		"OfContext":  {reason: "the namespace may be that of the context", args: []string{"adopt", east, "nothing", "-n", namespace}, wantErr: fmt.Sprintf("has no copy %q", namespace+"/nothing")},
		"Forbidden":  {reason: "the server's words", args: []string{"adopt", east, namespace + "/waits", "--as=" + namespace + "-user"}, wantErr: `cannot get resource "workerclusters"`},
		"TimedOut": {
			reason: "the worker does not answer", args: []string{"adopt", east, namespace + "/waits", "--timeout=100ms"},
			wantErr: "timed out: the latest words about uid-of-waits\nThe decision is kept", decided: "Adopt",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wantCall(t, start(t, tc.args...), 1, "", tc.wantErr)
			for _, copy := range []string{"waits", "nobodys"} {
				want := ""
				if copy == "waits" {
					want = tc.decided
				}
				check.Equal(t, want, decision(t, east, copy), "%s: decision about %s", tc.reason, copy)
			}
			patch(t, workers, "", east, `{"metadata": {"annotations": {"decision.trainyard.dev/uid-of-waits": null}}}`)
		})
	}
}

// identify sets the cluster ID of a WorkerCluster.
func identify(t *testing.T, name string) {
	t.Helper()
	patch(t, workers, "", name, `{"status": {"clusterID": "the-id"}}`, "status")
}

func forgotten(t *testing.T, name string) string {
	t.Helper()
	return getWorker(t, name).GetAnnotations()["trainyard.dev/forget"]
}

func TestForget(t *testing.T) {
	d := newDrained(t)
	lost := d.namespace + "-lost"
	d.place(t, "urgent", lost, 1)
	wantCall(t, start(t, "forget", lost, "--yes"), 1, "", "has never been connected to worker")
	identify(t, lost)
	tests := []struct {
		typed   string
		wantErr string
	}{
		{typed: d.east + "\n", wantErr: fmt.Sprintf("error: %q is not %q; nothing was changed", d.east, lost)},
		{typed: "\n", wantErr: "use --yes in scripts"},
		{typed: "", wantErr: "use --yes in scripts"},
	}
	for _, tc := range tests {
		wantCall(t, startTyping(t, strings.NewReader(tc.typed), "forget", lost), 1, "", tc.wantErr)
		if got := forgotten(t, lost); got != "" {
			t.Fatalf("it was forgotten (%q) after %q was typed", got, tc.typed)
		}
	}
	c := startTyping(t, strings.NewReader(lost), "forget", lost)
	wantCall(t, c, 0, "workercluster/"+lost+" forgotten\n", "THE RISK: ")
	for _, want := range []string{d.namespace + "   urgent ", "Type the name of the WorkerCluster to forget it: "} {
		if !strings.Contains(c.err.String(), want) {
			t.Errorf("no %q on stderr:\n%s", want, &c.err)
		}
	}
	check.Equal(t, "the-id", forgotten(t, lost), "annotation, which is the cluster's ID")
	wantSpec(t, lost, map[string]any{})
	wantCall(t, start(t, "forget", lost, "--yes"), 0, "workercluster/"+lost+" already forgotten\n", "")
}

func TestForgetWorkerThatAnswers(t *testing.T) {
	d := newDrained(t)
	identify(t, d.east)
	for _, flags := range [][]string{{"--yes"}, {"--yes", "--force"}} { // The hub would see the worker again at once.
		wantCall(t, start(t, append([]string{"forget", d.east}, flags...)...), 1, "",
			fmt.Sprintf("worker %q is not forgotten: it is Ready; move its jobs with kubectl trainyard drain", d.east))
		if got := forgotten(t, d.east); got != "" {
			t.Fatalf("it was forgotten: %q", got)
		}
	}
	patch(t, workers, "", d.east, `{"status": {"conditions": [
		{"type": "Ready", "status": "False", "reason": "TrainJobAPIMissing", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`, "status")
	wantCall(t, start(t, "forget", d.east, "--yes"), 1, "", "it answers (TrainJobAPIMissing); look again, or use --force")
	c := start(t, "forget", d.east, "--yes", "--force")
	wantCall(t, c, 0, "workercluster/"+d.east+" forgotten\n", d.namespace+"   runs ")
	if strings.Contains(c.err.String(), "Type the name") {
		t.Errorf("--yes asks: %s", &c.err)
	}
}

// TestForgetWorkerThatComesBack has a worker that returns while somebody reads what will happen.
func TestForgetWorkerThatComesBack(t *testing.T) {
	d := newDrained(t)
	lost := d.namespace + "-lost"
	identify(t, lost)
	in, typing := io.Pipe()
	c := startTyping(t, in, "forget", lost)
	c.awaitErr(t, "Type the name")
	patch(t, workers, "", lost, `{"status": {"conditions": [
		{"type": "Ready", "status": "True", "reason": "Connected", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`, "status")
	if _, err := io.WriteString(typing, lost+"\n"); err != nil {
		t.Fatal(err)
	}
	wantCall(t, c, 1, "", "is not forgotten: it is Ready")
	check.Equal(t, "", forgotten(t, lost), "it was forgotten")
	patch(t, workers, "", lost, `{"status": {"conditions": [
		{"type": "Ready", "status": "False", "reason": "Unreachable", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`, "status")
	c = startTyping(t, in, "forget", lost) // Nobody types anything.
	c.awaitErr(t, "Type the name")
	c.interrupt()
	if code := c.wait(t); code != 130 || strings.Contains(c.err.String(), "error:") {
		t.Errorf("exit code %d, stderr %q", code, &c.err)
	}
}
