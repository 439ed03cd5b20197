// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// triesAfterEnd is how often to try to read the log of a container that has ended.
const triesAfterEnd = 5

// newBackoff returns how long to wait before a stream is opened again.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 10 * time.Second}
}

// stream prints the log of a run until the run has ended, even if the stream is cut off.
func (f *follower) stream(ctx context.Context, of *run, first bool) error {
	backoff := newBackoff()
	for tries := 1; ; tries++ {
		before := f.writer.written
		err := f.streamOnce(ctx, of, first)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return err
		}
		if f.writer.written > before {
			backoff, tries, first = newBackoff(), 1, false
		}
		running := f.isRunning(ctx, of)
		if err == nil && !running {
			return nil
		}
		if apierrors.IsNotFound(err) && f.following.reader.elsewhere {
			return nil // The job has left the worker.
		}
		if !running && tries >= triesAfterEnd {
			f.following.out.say(of.pod.Name, fmt.Sprintf("the log of pod %q cannot be read: %v", of.pod.Name, err))
			return nil
		}
		if err != nil {
			f.following.out.say(of.pod.Name, fmt.Sprintf("the log of pod %q was cut off and is asked for again: %v", of.pod.Name, err))
		}
		if err := f.pause(ctx, backoff.Step()); err != nil {
			return err
		}
	}
}

func (f *follower) pause(ctx context.Context, d time.Duration) error {
	timer := f.following.reader.clients.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
		return nil
	}
}

// streamOnce prints the answer to one request. It skips what was printed of this container before.
func (f *follower) streamOnce(ctx context.Context, of *run, first bool) error {
	p := f.following.printer
	options := &corev1.PodLogOptions{Container: of.container}
	if first {
		options = p.logOptions(of.container)
	}
	options.Follow, options.Timestamps = true, true
	if reached := f.stamper.reached(); !reached.IsZero() {
		options.SinceSeconds, options.TailLines = nil, nil
		options.SinceTime = &metav1.Time{Time: reached} // It is sent in whole seconds, so the stamper must skip lines too.
		f.stamper.again()
	}
	stream, err := p.reader.clients.Kubernetes.CoreV1().Pods(of.pod.Namespace).GetLogs(of.pod.Name, options).Stream(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	_, err = io.Copy(f.stamper, stream)
	return err
}

// isRunning asks the API server whether a run continues although its stream has ended. Without an answer it may.
func (f *follower) isRunning(ctx context.Context, of *run) bool {
	pod, err := f.following.reader.clients.Kubernetes.CoreV1().Pods(of.pod.Namespace).Get(ctx, of.pod.Name, metav1.GetOptions{})
	if err != nil {
		var status apierrors.APIStatus
		return !errors.As(err, &status) || !apierrors.IsNotFound(err)
	}
	status := containerStatus(pod, of.container)
	return pod.UID == of.pod.UID && status != nil && status.State.Running != nil && status.RestartCount <= of.number
}
