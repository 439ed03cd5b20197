// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/check"
)

// TestLogsThroughTheGateway reads the log of a job on a worker, with the kubeconfig of the hub and with that of the
// gateway. The worker is a namespace behind a stand-in for the gateway.
func TestLogsThroughTheGateway(t *testing.T) {
	s := setUpGateway(t)
	j := job{name: "llm", namespace: s.worker, runtime: "fails", annotations: map[string]string{logOf: "one", runFor: forever}}
	j.create(t)
	dispatched(t, s.namespace, "llm", "h100")
	dispatched(t, s.namespace, "undecided", "")
	pod := awaitPods(t, j, corev1.PodRunning, 1)[0]
	through := s.kubeconfig(t)
	for name, tc := range map[string]struct {
		reason string
		args   []string
		code   int
		out    string
		want   []string
	}{
		"Hub":     {reason: "the command finds the gateway", args: []string{"llm", "--token", s.token}, out: "one\n"},
		"Gateway": {reason: "the kubeconfig leads there", args: []string{"llm", "--kubeconfig", through}, out: "one\n"},
		"Unpublished": {
			reason: "the kubeconfig is enough", args: []string{"llm", "--kubeconfig", through, "--manager-namespace", "default"}, out: "one\n",
		},
		"Certificate": {reason: "it says how to get a token", args: []string{"llm"}, code: 1, want: []string{"takes tokens only", "kubectl create token"}},
		"Waiting": {
			reason: "why there is no log yet", args: []string{"undecided", "--token", s.token}, code: 1,
			want: []string{`TrainJob "undecided" has no pods yet: it waits for a worker (NoFit: all are full)`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := s.logs.Load()
			c := start(t, append([]string{"logs", "-n", s.namespace, "--manager-namespace", s.namespace}, tc.args...)...)
			if code := c.wait(t); code != tc.code || c.out.String() != tc.out {
				t.Errorf("%s: exit code %d, stdout %q, stderr %q", tc.reason, code, &c.out, &c.err)
			}
			for _, want := range tc.want {
				if !strings.Contains(c.err.String(), want) {
					t.Errorf("%s: want %q in: %s", tc.reason, want, &c.err)
				}
			}
			if read := s.logs.Load() > before; read != (tc.out != "") {
				t.Errorf("%s: the gateway was asked for a log: %t", tc.reason, read)
			}
		})
	}
	t.Run("Follow", func(t *testing.T) {
		c := s.start(t, "logs", "llm", "-f", "--token", s.token)
		c.awaitOut(t, "one\n")
		printMore(t, &pod, logOf, "one\ntwo")
		c.awaitOut(t, "one\ntwo\n")
		endPod(t, &pod)
		patch(t, trainJobs, s.namespace, "llm", `{"status":{"conditions":[{"type":"Complete","status":"True","reason":"AllJobsCompleted","message":"",
			"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, "status")
		wantEnd(t, c, "one\ntwo\n", `TrainJob "llm" is Complete`)
	})
	t.Run("FollowAMove", func(t *testing.T) { // The next attempt has another JobSet, and nothing is known of the steps in between.
		dispatched(t, s.namespace, "moves", "h100")
		j := job{name: "moves", namespace: s.worker, runtime: "fails", annotations: map[string]string{logOf: "one", runFor: forever}}
		j.create(t)
		c := s.start(t, "logs", "moves", "-f", "--token", s.token)
		c.awaitOut(t, "one\n")
		check.Must(t, world.dynamic.Resource(trainJobs).Namespace(s.worker).Delete(t.Context(), "moves", metav1.DeleteOptions{}))
		c.awaitErr(t, `waiting: TrainJob "moves" has no pods yet: it is on worker "h100"`)
		j.annotations[logOf] = "two"
		j.create(t)
		c.awaitOut(t, "one\ntwo\n")
		c.awaitErr(t, `TrainJob "moves" was started again on worker`)
	})
	t.Run("FollowFromTheWaitingList", func(t *testing.T) {
		c := s.start(t, "logs", "undecided", "-f", "--token", s.token)
		c.awaitErr(t, `waiting: TrainJob "undecided" has no pods yet: it waits for a worker (NoFit: all are full)`)
		j := job{name: "undecided", namespace: s.worker, runtime: "fails", annotations: map[string]string{logOf: "at last", runFor: forever}}
		j.create(t)
		c.awaitOut(t, "at last\n")
	})
}
