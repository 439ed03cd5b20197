// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
)

// noteDelay is how long a wait lasts before it is reported. Every pod is unscheduled for a moment.
const noteDelay = time.Second

// following is the state of a printer that follows. Only its own goroutine uses it.
type following struct {
	*printer
	watcher *watcher
	results chan result
	// nodes are the nodes that have a follower.
	nodes []int32
	// alive counts the followers that have not ended.
	alive int
	// read is true if a log was read. printed is true if a log was not empty.
	read, printed bool
}

type result struct {
	read    bool
	written int64
	err     error
}

// follow prints until the job has ended.
func (p *printer) follow(ctx context.Context) error {
	s, err := p.reader.find(ctx)
	if err != nil {
		return err
	}
	if _, err := chooseNode(s, p.options); err != nil {
		return err
	}
	if s.kept {
		return p.print(ctx, s)
	}
	ctx, w, err := p.reader.watch(ctx, s.job.GetUID())
	if err != nil {
		return err
	}
	defer w.fail(nil)
	f := &following{printer: p, watcher: w, results: make(chan result)}
	return f.run(ctx)
}

// run starts followers when nodes become known, until all have ended and no more will start.
func (f *following) run(ctx context.Context) error {
	quiet := f.reader.clients.Clock.NewTimer(noteDelay)
	defer quiet.Stop()
	for {
		changed := f.watcher.changed()
		f.watcher.readRest(ctx)
		s, err := f.snapshot(ctx)
		if err != nil {
			return err
		}
		of, err := chooseNode(s, f.options)
		if err != nil {
			return err
		}
		f.startFollowers(ctx, s, of)
		if f.alive == 0 && f.isDone(s, of) {
			return f.finish(s, of)
		}
		quiet.Reset(noteDelay)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-quiet.C():
			f.out.say("waiting", whatIsAwaited(s, of, f.nodes, f.options.Container))
			if err := f.await(ctx, changed); err != nil {
				return err
			}
		case <-changed:
		case r := <-f.results:
			if err := f.take(r); err != nil {
				return err
			}
		}
	}
}

// await waits for the next change, or the end of a follower.
func (f *following) await(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-changed:
		return nil
	case r := <-f.results:
		return f.take(r)
	}
}

func (f *following) take(r result) error {
	f.alive--
	f.read, f.printed = f.read || r.read, f.printed || r.written > 0
	return r.err
}

// snapshot returns the watched state. Once the job has ended, it reads the pods from the API server.
func (f *following) snapshot(ctx context.Context) (*snapshot, error) {
	s, err := f.watcher.snapshot()
	if err != nil || s.end() == nil {
		return s, err
	}
	return f.watcher.final(ctx)
}

func (f *following) startFollowers(ctx context.Context, s *snapshot, of *step) {
	if of == nil {
		return
	}
	nodes := []int32{f.options.Node}
	if f.options.AllNodes {
		nodes = allNodes(s, *of)
	}
	for _, node := range nodes {
		if slices.Contains(f.nodes, node) {
			continue
		}
		f.nodes = append(f.nodes, node)
		f.alive++
		one := &follower{following: f, step: of.name, node: node, writer: f.out.writer("")}
		if f.options.AllNodes {
			one.writer = f.out.writer(prefix(*of, node))
		}
		go one.report(ctx)
	}
}

// isDone says whether no more followers will start.
func (f *following) isDone(s *snapshot, of *step) bool {
	if s.job == nil || s.end() != nil {
		return true
	}
	return of != nil && len(f.nodes) > 0 && othersGoOn(s.steps(), *of)
}

func (f *following) finish(s *snapshot, of *step) error {
	name := f.options.Job.Name
	end := s.end()
	switch {
	case s.job == nil && !f.read:
		return fmt.Errorf("TrainJob %q was deleted before there was a log", name)
	case !f.read:
		return noPod(s, of, f.options.Node)
	}
	if !f.printed {
		f.out.say("", fmt.Sprintf("step %s of TrainJob %q has printed nothing", stepName(of), name))
	}
	switch {
	case s.job == nil:
		f.out.say("", fmt.Sprintf("TrainJob %q was deleted", name))
	case end == nil:
		f.out.say("", fmt.Sprintf("step %s of TrainJob %q has succeeded; the job goes on", of.name, name))
	case end.Type == trainer.TrainJobComplete:
		f.out.say("", fmt.Sprintf("TrainJob %q is Complete", name))
	default:
		f.out.say("", fmt.Sprintf("TrainJob %q has failed: %s: %s", name, end.Reason, end.Message))
	}
	return nil
}

func stepName(of *step) string {
	if of == nil {
		return ""
	}
	return of.name
}

// follower prints the logs of one node.
type follower struct {
	following *following
	step      string
	node      int32
	writer    *lineWriter

	last    *run
	stamper *stamper
}

func (f *follower) report(ctx context.Context) {
	err := f.follow(ctx)
	select {
	case f.following.results <- result{read: f.last != nil, written: f.writer.written, err: err}:
	case <-ctx.Done():
	}
}

func (f *follower) follow(ctx context.Context) error {
	for {
		changed := f.following.watcher.changed()
		s, err := f.following.snapshot(ctx)
		if err != nil {
			return err
		}
		steps := s.steps()
		at := slices.IndexFunc(steps, func(s step) bool { return s.name == f.step })
		if at < 0 && s.isBetweenAttempts() {
			if err := awaitChange(ctx, changed); err != nil {
				return err
			}
			continue
		}
		if at < 0 { // The job and its pods are deleted.
			return nil
		}
		next, err := nextRun(s, steps[at], f.node, f.following.options.Container, f.last)
		if err != nil {
			return err
		}
		if next != nil {
			if err := f.read(ctx, s, steps[at], next); err != nil {
				return err
			}
			continue
		}
		if isOver(s, steps[at], f.node) {
			return nil
		}
		if err := awaitChange(ctx, changed); err != nil {
			return err
		}
	}
}

func awaitChange(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-changed:
		return nil
	}
}

func (f *follower) read(ctx context.Context, s *snapshot, of step, next *run) error {
	if f.last != nil {
		text, all := whyAgain(s, of, f.node, f.last, next)
		topic := "again"
		if !all {
			topic = fmt.Sprintf("again %d", f.node)
		}
		f.following.out.say(topic, text)
	}
	resumes := f.last.isOf(next.pod)
	if !resumes {
		f.stamper = &stamper{to: f.writer, keep: f.following.options.Timestamps}
	}
	first := f.last == nil
	f.last = next
	err := f.stream(ctx, next, first)
	return errors.Join(err, f.writer.endLine())
}
