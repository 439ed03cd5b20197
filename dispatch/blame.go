// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"runtime/debug"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// WorkerPanic is the value of a panic over what one worker has, or says of itself.
type WorkerPanic struct {
	// Worker is the worker that was looked at.
	Worker v1alpha1.ClusterName
	// Value is the value of the first panic, and Stack where it was.
	Value any
	Stack []byte
}

// Blame is to be deferred by code that looks at one worker after another, and keeps in *worker at which one. It makes a
// panic a WorkerPanic, so that the caller can do without that worker. The value of *worker is "" while the code looks at
// no worker.
func Blame(worker *v1alpha1.ClusterName) {
	value := recover()
	if value == nil {
		return
	}
	if _, is := value.(*WorkerPanic); !is && *worker != "" {
		value = &WorkerPanic{Worker: *worker, Value: value, Stack: debug.Stack()}
	}
	panic(value)
}

// BlamedOn returns the WorkerPanic in the result of recover, nil if there was no panic. It panics again over any other
// value: nobody knows which worker to do without.
func BlamedOn(recovered any) *WorkerPanic {
	if recovered == nil {
		return nil
	}
	p, is := recovered.(*WorkerPanic)
	if !is {
		panic(recovered)
	}
	return p
}
