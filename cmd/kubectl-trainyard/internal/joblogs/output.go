// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

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
