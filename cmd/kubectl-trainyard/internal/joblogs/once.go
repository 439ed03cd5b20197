// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// streamsAhead is how many logs are opened before they are printed.
const streamsAhead = 8

type source struct {
	node      int32
	pod       *corev1.Pod
	container string
	previous  bool
}

func (p *printer) printOnce(ctx context.Context) error {
	s, err := p.reader.find(ctx)
	if err != nil {
		return err
	}
	return p.print(ctx, s)
}

func (p *printer) print(ctx context.Context, s *snapshot) error {
	of, err := chooseNode(s, p.options)
	if err != nil {
		return err
	}
	if of == nil {
		return noPod(s, nil, 0)
	}
	if p.options.AllNodes {
		return p.printAll(ctx, s, *of)
	}
	from, err := p.findSource(s, *of, p.options.Node)
	if err != nil {
		return err
	}
	return p.printSource(ctx, *of, from)
}

// chooseNode returns the step that the options select, or nil if no step is known yet. Its error says that the step does
// not have the node.
func chooseNode(s *snapshot, o Options) (*step, error) {
	steps := s.steps()
	if len(steps) == 0 {
		return nil, nil
	}
	of, err := chooseStep(o.Job.Name, steps, o.Step)
	if err != nil {
		return nil, err
	}
	if !o.AllNodes {
		err = checkNode(of, o.Node)
	}
	return &of, err
}

// findSource returns the log of a node. Its error says why there is none.
func (p *printer) findSource(s *snapshot, of step, node int32) (source, error) {
	pods := nodePods(s, of)[node]
	if len(pods) == 0 {
		return source{}, noPod(s, &of, node)
	}
	pod := pods[len(pods)-1]
	container, err := chooseContainer(pod, of, p.options.Container)
	if err != nil {
		return source{}, err
	}
	from := source{node: node, pod: pod, container: container}
	if s.kept { // Nothing else is known of its containers. The gateway says what is missing.
		from.previous = p.options.Previous
		return from, nil
	}
	status := containerStatus(pod, container)
	earlier := slices.DeleteFunc(slices.Clone(pods[:len(pods)-1]), func(pod *corev1.Pod) bool { return !hasLog(containerStatus(pod, container)) })
	switch {
	case p.options.Previous && hasPreviousLog(status):
		from.previous = true
	case p.options.Previous && len(earlier) > 0:
		from.pod = earlier[len(earlier)-1]
	case p.options.Previous:
		return from, fmt.Errorf("step %s has nothing before pod %q on node %d: it was not restarted, or what was before is deleted", of.name, pod.Name, node)
	case !hasLog(status) && len(earlier) > 0:
		return from, fmt.Errorf("pod %q of step %s, node %d, has no log: %s; the pod that it replaces has one (--previous)",
			pod.Name, of.name, node, whyNoLog(pod, container))
	case !hasLog(status):
		return from, fmt.Errorf("pod %q of step %s, node %d, has no log: %s", pod.Name, of.name, node, whyNoLog(pod, container))
	}
	return from, nil
}

// printSource prints one log unchanged.
func (p *printer) printSource(ctx context.Context, of step, from source) error {
	stream, err := p.open(ctx, from)
	if err != nil {
		return err
	}
	return p.copyLog(of, from, stream, p.out.writer(""))
}

func (p *printer) open(ctx context.Context, from source) (io.ReadCloser, error) {
	options := p.logOptions(from.container)
	options.Previous = from.previous
	stream, err := p.reader.clients.Kubernetes.CoreV1().Pods(from.pod.Namespace).GetLogs(from.pod.Name, options).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read log of pod %q: %w", from.pod.Name, err)
	}
	return stream, nil
}

func (p *printer) logOptions(container string) *corev1.PodLogOptions {
	options := &corev1.PodLogOptions{Container: container, Timestamps: p.options.Timestamps}
	if p.options.Since > 0 {
		options.SinceSeconds = ptr.To(int64(p.options.Since.Round(time.Second) / time.Second))
	}
	if p.options.Tail >= 0 {
		options.TailLines = ptr.To(p.options.Tail)
	}
	return options
}

// copyLog prints an open log, and reports an empty one.
func (p *printer) copyLog(of step, from source, stream io.ReadCloser, to *lineWriter) error {
	defer stream.Close()
	if _, err := io.Copy(to, stream); err != nil {
		return fmt.Errorf("read log of pod %q: %w", from.pod.Name, err)
	}
	if to.written == 0 {
		p.sayNothingPrinted(of, from.node, from.pod, from.container)
	}
	return nil
}

func (p *printer) sayNothingPrinted(of step, node int32, pod *corev1.Pod, container string) {
	text := fmt.Sprintf("pod %q (step %s, node %d) has printed nothing", pod.Name, of.name, node)
	if p.options.Since > 0 {
		text += fmt.Sprintf(" in the last %s", p.options.Since)
	} else if status := containerStatus(pod, container); status != nil && status.State.Running != nil {
		text += " yet"
	}
	p.out.say("nothing "+pod.Name, text)
}

// printAll prints the logs of all nodes in their order. It opens several at a time.
func (p *printer) printAll(ctx context.Context, s *snapshot, of step) error {
	if len(nodePods(s, of)) == 0 {
		return noPod(s, &of, 0)
	}
	var sources []source
	var missing []error
	for _, node := range allNodes(s, of) {
		from, err := p.findSource(s, of, node)
		if err != nil {
			missing = append(missing, err)
			continue
		}
		sources = append(sources, from)
	}
	if len(sources) == 0 {
		return missing[0]
	}
	for _, err := range missing {
		p.out.say("", err.Error())
	}
	return p.printSources(ctx, of, sources)
}

type opened struct {
	stream io.ReadCloser
	err    error
}

// printSources continues with the next log when a log cannot be read, and reports that at the end.
func (p *printer) printSources(ctx context.Context, of step, sources []source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // This closes the streams that are not printed.
	slots := make(chan struct{}, streamsAhead)
	answers := make([]chan opened, len(sources))
	for i := range answers {
		answers[i] = make(chan opened, 1)
	}
	go func() {
		for i, from := range sources {
			select {
			case <-ctx.Done():
				return
			case slots <- struct{}{}: // In this order, so that the logs that are printed next are open.
			}
			go func() {
				stream, err := p.open(ctx, from)
				answers[i] <- opened{stream: stream, err: err}
			}()
		}
	}()
	var errs []error
	for i, from := range sources {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case answer := <-answers[i]:
			if answer.err == nil {
				writer := p.out.writer(prefix(of, from.node))
				answer.err = errors.Join(p.copyLog(of, from, answer.stream, writer), writer.endLine())
			}
			errs = append(errs, answer.err)
			<-slots
		}
	}
	return errors.Join(errs...)
}

func prefix(of step, node int32) string { return fmt.Sprintf("[%s-%d] ", of.name, node) }
