// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/dispatch/record"
)

const (
	// logTimeout is how long one log may take that is not followed.
	logTimeout = time.Minute
	// tries is how often a log is read at most, if the worker does not answer.
	tries = 3
	// shortLine is how many bytes a line has at least, in most logs. A log of shorter lines is read a second time.
	shortLine = 64
	// maxWords bounds the words of a worker.
	maxWords = 256
)

// one reads one log and writes its end to the archive. It returns false if the log may go on.
func (r *reading) one(ctx context.Context, worker kubernetes.Interface, s *source) (ended bool) {
	if s.Missing != "" {
		return true
	}
	end, err := r.endOf(ctx, worker, s)
	if end == nil {
		s.Missing = r.words(err)
		missedLogs.Inc()
		return true
	}
	kept := end.end()
	s.Bytes = int64(len(kept))
	if err := r.put(ctx, s, kept); err != nil {
		log.FromContext(ctx).Error(err, "A log is not kept", "pod", s.pod.Namespace+"/"+s.pod.Name, "container", s.Name)
		s.Bytes, s.Missing = 0, "the log archive did not take it"
		missedLogs.Inc()
		return !s.runs
	}
	keptLogs.Inc()
	return err == nil
}

// put writes to the archive. What was read before the time was over is kept, too.
func (r *reading) put(ctx context.Context, s *source, kept []byte) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logTimeout)
	defer cancel()
	for range tries {
		if err = r.Archive.Keep(ctx, r.index.Attempt, s.pod.Name, &s.Container, kept); err == nil {
			return nil
		}
		archiveFailures.Inc()
		if r.pause(ctx, time.Second) != nil {
			return err
		}
	}
	return err
}

// errOpen is the error of a log that was read without its end, because its container goes on.
var errOpen = errors.New("the container had not ended")

// endOf reads the end of a log. With an error it returns what could be read, nil if nothing.
func (r *reading) endOf(ctx context.Context, worker kubernetes.Interface, s *source) (*tail, error) {
	if r.following && s.runs && r.follow.try() {
		defer r.follow.leave()
		if r.Slots.follow.try() {
			defer r.Slots.follow.leave()
			return r.followed(ctx, worker, s)
		}
	}
	if err := r.read.wait(ctx); err != nil {
		return nil, errTime
	}
	defer r.read.leave()
	end, err := r.patiently(ctx, worker, s)
	if err == nil && s.runs {
		s.Note, s.Whole, err = "it was read while its container ran", false, errOpen
	}
	return end, err
}

// errTime says that a log was not read.
var errTime = errors.New("the time was over before the log was read")

// patiently reads a log that is not followed. If the worker does not answer, it tries again.
func (r *reading) patiently(ctx context.Context, worker kubernetes.Interface, s *source) (*tail, error) {
	for try := 1; ; try++ {
		end, err := r.whole(ctx, worker, s)
		if err == nil || isFinal(err) || try == tries {
			return end, err
		}
		if r.pause(ctx, time.Duration(try)*time.Second) != nil {
			return nil, err
		}
	}
}

// whole reads as many lines as most likely are needed. If they are too few, it reads as many as can be needed.
func (r *reading) whole(ctx context.Context, worker kubernetes.Interface, s *source) (*tail, error) {
	lines := max(1, r.Size/shortLine)
	end, err := r.lines(ctx, worker, s, lines)
	if err == nil && end.lines >= lines && !end.dropped() {
		lines = r.Size
		end, err = r.lines(ctx, worker, s, lines)
	}
	if err != nil {
		return nil, err
	}
	s.Whole = end.lines < lines && !end.dropped()
	return end, nil
}

func (r *reading) lines(ctx context.Context, worker kubernetes.Interface, s *source, lines int) (*tail, error) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	stream, err := r.open(ctx, worker, s, lines, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	if err := r.Slots.read.wait(ctx); err != nil {
		return nil, errTime
	}
	defer r.Slots.read.leave()
	end := &tail{limit: r.Size}
	if _, err := io.Copy(end, stream); err != nil {
		return nil, fmt.Errorf("the worker's answer was cut: %w", err)
	}
	return end, nil
}

// followed reads a log until its container ends, or until the time is over.
func (r *reading) followed(ctx context.Context, worker kubernetes.Interface, s *source) (*tail, error) {
	lines := max(1, r.Size/shortLine)
	stream, err := r.open(ctx, worker, s, lines, true)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	end := &tail{limit: r.Size}
	_, err = io.Copy(end, stream)
	s.Whole = end.lines < lines && !end.dropped()
	switch {
	case ctx.Err() != nil:
		s.Note, s.Whole = "it was followed while the job was stopped, and its container had not ended in time", false
		err = errOpen
	case err != nil:
		s.Note, s.Whole = "the worker's answer was cut while the job was stopped", false
		err = errOpen
	}
	return end, err
}

// open begins to read the last lines of a log.
func (r *reading) open(
	ctx context.Context, worker kubernetes.Interface, s *source, lines int, follow bool,
) (io.ReadCloser, error) {
	options := &corev1.PodLogOptions{
		Container: s.Name, Previous: s.Previous, Follow: follow, TailLines: ptr.To(int64(lines)),
	}
	return worker.CoreV1().Pods(s.pod.Namespace).GetLogs(s.pod.Name, options).Stream(ctx)
}

// isFinal says whether a worker would give the same answer again.
func isFinal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsBadRequest(err)
}

// words say to users why a log is missing.
func (r *reading) words(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("worker %q does not let Trainyard read logs; an admin of the worker permits it with %q",
			r.Cluster, "kubectl trainyard join "+string(r.Cluster))
	case apierrors.IsNotFound(err):
		return "the pod was gone before its log was read"
	case errors.Is(err, errTime):
		return errTime.Error()
	}
	var said apierrors.APIStatus
	if errors.As(err, &said) {
		return record.Shorten(said.Status().Message, maxWords)
	}
	return fmt.Sprintf("worker %q did not answer", r.Cluster) // The error itself can have addresses.
}
