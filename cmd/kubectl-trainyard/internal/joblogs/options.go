// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// Clients are the clients of the cluster, and the user's clock.
type Clients struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	Clock      clock.Clock
	// Config is what the clients are made of. Only Find needs it.
	Config *rest.Config
	// Gateway returns clients that lead through the gateway of the hub, for jobs whose pods are on workers. Its error says
	// why there are none.
	Gateway func(context.Context) (Clients, error)
}

// Streams are the outputs: logs go to Out, and remarks about them to ErrOut.
type Streams struct {
	Out    io.Writer
	ErrOut io.Writer
}

// Options say what to print.
type Options struct {
	Job types.NamespacedName
	// Context is the name of the kubeconfig's context, for messages. It may be empty.
	Context string
	// Step is the name of a step. Empty: the launcher if there is one, otherwise the trainer.
	Step string
	// Node is the number of the node in its step, from 0. AllNodes overrides it.
	Node     int32
	AllNodes bool
	// Container is the name of the container. Empty: the container that does the step's work.
	Container string

	// Follow prints until the job has ended.
	Follow bool
	// Previous prints the log of the try before the latest.
	Previous bool
	// Since skips older lines, if it is not 0.
	Since time.Duration
	// Tail is how many of the last lines are printed. -1: all.
	Tail int64
	// Timestamps prints the time of each line before it.
	Timestamps bool
}

// Print prints logs of a job. Its error tells the user why there are none. When ctx ends, it returns ctx's error.
func Print(ctx context.Context, clients Clients, streams Streams, o Options) error {
	p := &printer{reader: reader{clients: clients, job: o.Job, context: o.Context}, options: o, out: newOutput(streams)}
	if o.Follow {
		return p.follow(ctx)
	}
	return p.printOnce(ctx)
}

type printer struct {
	reader  reader
	options Options
	out     *output
}

// maxLine is how many bytes a line with a prefix may have. A longer line is broken: it must end before it is printed.
const maxLine = 1 << 20

// output separates what several goroutines write, by whole lines if there are prefixes.
type output struct {
	mu   sync.Mutex
	out  io.Writer         // under mu
	err  io.Writer         // under mu
	said map[string]string // the last message by topic; under mu
}

func newOutput(streams Streams) *output {
	return &output{out: streams.Out, err: streams.ErrOut, said: map[string]string{}}
}

// say tells the user something about the logs, unless it is the last message of the topic.
func (o *output) say(topic, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if text == "" || o.said[topic] == text {
		return
	}
	o.said[topic] = text
	fmt.Fprintln(o.err, text)
}

// writer returns a writer for a node's log. Every line gets the prefix. Without a prefix, text is written at once.
func (o *output) writer(prefix string) *lineWriter { return &lineWriter{output: o, prefix: prefix} }

// lineWriter is for one goroutine.
type lineWriter struct {
	output  *output
	prefix  string
	line    []byte // the line that has not ended yet, if there is a prefix
	midLine bool
	written int64
}

// Write writes whole lines if there is a prefix, and otherwise everything.
func (w *lineWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	w.written += int64(len(p))
	w.midLine = p[len(p)-1] != '\n'
	if w.prefix == "" {
		return len(p), w.output.write(p)
	}
	w.line = append(w.line, p...)
	last := bytes.LastIndexByte(w.line, '\n')
	if last < 0 && len(w.line) < maxLine {
		return len(p), nil
	} else if last < 0 {
		w.line = append(w.line, '\n')
		last = len(w.line) - 1
	}
	var text []byte
	for line := range bytes.Lines(w.line[:last+1]) {
		text = append(append(text, w.prefix...), line...)
	}
	w.line = append(w.line[:0], w.line[last+1:]...)
	return len(p), w.output.write(text)
}

// endLine ends an open line, so that the next text begins a new line.
func (w *lineWriter) endLine() error {
	if !w.midLine {
		return nil
	}
	_, err := w.Write([]byte("\n"))
	return err
}

func (o *output) write(p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, err := o.out.Write(p)
	return err
}
