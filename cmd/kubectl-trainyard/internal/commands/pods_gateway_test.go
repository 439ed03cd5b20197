// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"io"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/check"
)

// TestPodsThroughTheGateway prints the pods of jobs, describes them, and runs commands in them, on this cluster and on a
// worker: a namespace behind a stand-in for the gateway.
func TestPodsThroughTheGateway(t *testing.T) {
	s := setUpGateway(t)
	there := job{name: "llm", namespace: s.worker, runtime: "fails", nodes: 2, annotations: map[string]string{runFor: forever}}
	there.create(t)
	here := job{name: "local", namespace: s.namespace, runtime: "fails", annotations: map[string]string{runFor: forever}}
	here.create(t)
	ended := job{name: "ended", namespace: s.worker, runtime: "fails", annotations: map[string]string{}}
	ended.create(t)
	for name, worker := range map[string]string{"llm": "h100", "ended": "h100", "undecided": ""} {
		dispatched(t, s.namespace, name, worker)
	}
	pods := awaitPods(t, there, corev1.PodRunning, 2)
	local := awaitPods(t, here, corev1.PodRunning, 1)[0]
	awaitPods(t, ended, corev1.PodSucceeded, 1)
	for _, pod := range pods { // Workers' pods have the label in the gateway.
		patchPod(t, &pod, `{"metadata":{"labels":{"trainyard.dev/cluster":"h100"}}}`)
	}
	happened(t, s.namespace, "llm", "the copy was created")

	user, admin := []string{"--token", s.token}, []string(nil)
	tests := map[string]struct {
		reason string
		args   []string
		as     []string
		code   int
		// out and err are parts of what is printed. none must not be in it.
		out, err, none []string
	}{
		"Pods": {
			reason: "of the worker", args: []string{"pods", "llm"}, as: user,
			out: []string{pods[0].Name, pods[1].Name, "CLUSTER", "h100"}, none: []string{local.Name},
		},
		"PodsHere":  {reason: "a job of this cluster", args: []string{"pods", "local"}, as: admin, out: []string{local.Name}, none: []string{"CLUSTER"}},
		"NoPods":    {reason: "why there are none", args: []string{"pods", "undecided"}, as: user, err: []string{`TrainJob "undecided" has no pods yet: it waits for a worker (NoFit: all are full)`}},
		"PodsOfAll": {reason: "one job", args: []string{"pods"}, as: user, code: 1, err: []string{"name one TrainJob: kubectl trainyard pods TRAINJOB"}},
		"PodsForbidden": {
			reason: "without a token nobody gets through", args: []string{"pods", "llm"}, as: admin, code: 1, err: []string{"takes tokens only"},
		},
		"BadOutput": {reason: "kubectl's words", args: []string{"pods", "llm", "-o", "xml"}, as: user, code: 1, err: []string{`"xml"`, "allowed formats are"}},
		"Describe": {
			reason: "with Events", args: []string{"describe", "llm"}, as: user, out: []string{"Name:", "llm", "Events:", "the copy was created"},
		},
		"DescribeNothing": {reason: "a mistyped name", args: []string{"describe", "lml"}, as: user, code: 1, err: []string{`there is no TrainJob "lml"`}},
		"Exec":            {reason: "on the first node", args: []string{"exec", "llm", "--", "echo", "hello"}, as: user, out: []string{"hello\n"}},
		"ExecHere":        {reason: "a job of this cluster", args: []string{"exec", "local", "--", "echo", "hello"}, as: admin, out: []string{"hello\n"}},
		"ExecCode":        {reason: "the command's exit code", args: []string{"exec", "llm", "--", "sh", "-c", "exit 7"}, as: user, code: 7, none: []string{"error"}},
		"ExecType":        {reason: "a name as kubectl prints it", args: []string{"exec", "trainjob/llm", "--", "echo", "hello"}, as: user, out: []string{"hello\n"}},
		"ExecNode":        {reason: "no such node", args: []string{"exec", "llm", "--node", "9", "--", "echo"}, as: user, code: 1, err: []string{"has no pod for node 9"}},
		"ExecContainer":   {reason: "no such container", args: []string{"exec", "llm", "-c", "asid", "--", "echo"}, as: user, code: 1, err: []string{`has no container "asid"`, `did you mean "aside"`}},
		"ExecNegative":    {reason: "no such node", args: []string{"exec", "llm", "--node", "-1", "--", "echo"}, as: user, code: 1, err: []string{"--node is -1"}},
		"ExecNothing":     {reason: "what to run", args: []string{"exec", "llm"}, as: user, code: 1, err: []string{"after -- the command"}},
		"ExecNoDashes":    {reason: "kubectl wants them too", args: []string{"exec", "llm", "ls"}, as: user, code: 1, err: []string{"after -- the command"}},
		"ExecNoJob":       {reason: "what is the job", args: []string{"exec", "--", "ls"}, as: user, code: 1, err: []string{"name one TrainJob"}},
		"ExecWaiting":     {reason: "why it cannot", args: []string{"exec", "undecided", "--", "ls"}, as: user, code: 1, err: []string{"it waits for a worker"}},
		"Trace": {
			reason: "with the pods of the worker", args: []string{"trace", "llm"}, as: user, none: []string{"note:"},
			out: []string{"TrainJob " + s.namespace + "/llm, trace ", "└ attempt 1 on h100", "├ scheduling", "└ readying"},
		},
		"TraceForbidden": {
			reason: "the hub's records are there, and the pods are missing, in words", args: []string{"trace", "llm"}, as: admin,
			out: []string{"└ attempt 1 on h100", "└ placed"}, none: []string{"scheduling"},
			err: []string{"note: when pods got nodes, pulled images and became ready is not shown: ", "takes tokens only"},
		},
		"TraceHere":    {reason: "a job of this cluster", args: []string{"trace", "local"}, as: admin, out: []string{"trainjob  ", "├ scheduling"}, none: []string{"attempt", "note:"}},
		"TraceWaiting": {reason: "a job without a worker has no pods", args: []string{"trace", "undecided"}, as: admin, out: []string{"└ waiting"}, none: []string{"note:"}},
		"ExecEnded":    {reason: "nothing runs", args: []string{"exec", "ended", "--", "ls"}, as: user, code: 1, err: []string{"has ended with exit code 0"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			args, command := tc.args, []string(nil)
			for i, arg := range args {
				if arg == "--" {
					args, command = args[:i], args[i:]
					break
				}
			}
			args = append(append([]string{}, args...), append([]string{"-n", s.namespace, "--manager-namespace", s.namespace}, tc.as...)...)
			c := start(t, append(args, command...)...)
			check.Equal(t, tc.code, c.wait(t), "%s: exit code; stdout:\n%s\nstderr:\n%s", tc.reason, &c.out, &c.err)
			for _, part := range []struct {
				text string
				want []string
			}{{c.out.String(), tc.out}, {c.err.String(), tc.err}} {
				for _, want := range part.want {
					if !strings.Contains(part.text, want) {
						t.Errorf("%s: want %q in:\n%s", tc.reason, want, part.text)
					}
				}
			}
			for _, none := range tc.none {
				if strings.Contains(c.out.String()+c.err.String(), none) {
					t.Errorf("%s: %q is in:\n%s%s", tc.reason, none, &c.out, &c.err)
				}
			}
		})
	}
	t.Run("ExecInput", func(t *testing.T) {
		c := startTyping(t, strings.NewReader("typed\n"), "exec", "llm", "-i", "-n", s.namespace, "--manager-namespace", s.namespace, "--token", s.token, "--", "cat")
		check.Equal(t, 0, c.wait(t), "exit code: %s", &c.err)
		check.Equal(t, "typed\n", c.out.String(), "what the command has read")
	})
	t.Run("ExecInterrupted", func(t *testing.T) {
		in, _ := io.Pipe()
		c := startTyping(t, in, "exec", "llm", "-i", "-n", s.namespace, "--manager-namespace", s.namespace, "--token", s.token, "--", "sh", "-c", "echo begun; cat")
		c.awaitOut(t, "begun\n")
		c.interrupt()
		check.Equal(t, 130, c.wait(t), "exit code")
	})
	t.Run("Watch", func(t *testing.T) {
		c := s.start(t, "pods", "llm", "-w", "--no-headers", "--token", s.token)
		awaitLines := func(count int) {
			t.Helper()
			eventually(t, "lines of pods", func(g gomega.Gomega) {
				g.Expect(strings.Count(c.out.String(), "llm-node-0-")).To(gomega.Equal(count), c.out.String())
			})
		}
		awaitLines(2)
		patchPod(t, &pods[0], `{"metadata":{"labels":{"changed":"yes"}}}`)
		awaitLines(3)
		c.interrupt()
		check.Equal(t, 130, c.wait(t), "exit code")
	})
}

// happened writes an Event about a TrainJob.
func happened(t *testing.T, namespace, job, message string) {
	t.Helper()
	object, err := world.dynamic.Resource(trainJobs).Namespace(namespace).Get(t.Context(), job, metav1.GetOptions{})
	check.Must(t, err)
	about := corev1.ObjectReference{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Namespace: namespace, Name: job, UID: object.GetUID()}
	_, err = world.kubernetes.CoreV1().Events(namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: job}, InvolvedObject: about, Type: corev1.EventTypeNormal, Reason: "Created", Message: message,
	}, metav1.CreateOptions{})
	check.Must(t, err)
}
