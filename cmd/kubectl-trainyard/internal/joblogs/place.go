// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// Place is where the pods of a job are.
type Place struct {
	// Config leads there: to the cluster of the user, or through the gateway of the hub.
	Config *rest.Config
	// Selector selects the pods there, by labels.
	Selector string
	// Elsewhere is true if they are on a worker.
	Elsewhere bool

	seen *snapshot
}

// Find finds the pods of a job. Its error says why they cannot be reached.
func Find(ctx context.Context, clients Clients, o Options) (*Place, error) {
	r := reader{clients: clients, job: o.Job, context: o.Context}
	seen, err := r.find(ctx)
	if err != nil {
		return nil, err
	}
	if seen.kept {
		seen.pods = nil // There is no pod to look at.
	}
	return &Place{Config: r.clients.Config, Selector: r.podSelector(), Elsewhere: r.elsewhere, seen: seen}, nil
}

// WhyNone says why the job has no pods. It is empty if there are some.
func (p *Place) WhyNone() string {
	if len(p.seen.pods) > 0 {
		return ""
	}
	return whyNoPod(p.seen, nil, 0)
}

// Running returns the pod of a step's node, and the container of it that runs. Its error says why none does.
func (p *Place) Running(o Options) (pod, container string, err error) {
	of, err := chooseNode(p.seen, o)
	if err != nil {
		return "", "", err
	}
	if of == nil {
		return "", "", noPod(p.seen, nil, 0)
	}
	pods := nodePods(p.seen, *of)[o.Node]
	if len(pods) == 0 {
		return "", "", noPod(p.seen, of, o.Node)
	}
	latest := pods[len(pods)-1]
	if container, err = chooseContainer(latest, *of, o.Container); err != nil {
		return "", "", err
	}
	return latest.Name, container, whyNotRunning(latest, *of, o.Node, container)
}

// whyNotRunning is nil for a container that runs.
func whyNotRunning(pod *corev1.Pod, of step, node int32, container string) error {
	status := containerStatus(pod, container)
	switch {
	case status != nil && status.State.Running != nil:
		return nil
	case status != nil && status.State.Terminated != nil:
		return fmt.Errorf("container %q of pod %q (step %s, node %d) has ended with exit code %d", container, pod.Name, of.name, node,
			status.State.Terminated.ExitCode)
	default:
		return fmt.Errorf("pod %q of step %s, node %d, does not run: %s", pod.Name, of.name, node, whyNoLog(pod, container))
	}
}
