// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"context"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// Clients are the clients of the cluster, and the user's clock.
type Clients struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	Clock      clock.Clock
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
