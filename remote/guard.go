// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"runtime/debug"

	toolscache "k8s.io/client-go/tools/cache"
)

// guard keeps a panic over an object of one worker from ending the process. Transforms and event handlers are called in
// the goroutine of a reflector, in which nobody recovers. The guard says what could not be handled, and why.
type guard func(what string, value any, stack []byte)

// recover is to be deferred.
func (g guard) recover(what string) {
	if value := recover(); value != nil {
		g(what, value, debug.Stack())
	}
}

// transform returns a transform that keeps an object as it is if the given one panics over it.
func (g guard) transform(kind string, transform toolscache.TransformFunc) toolscache.TransformFunc {
	return func(in any) (out any, err error) {
		out = in
		defer g.recover("a " + kind)
		return transform(in)
	}
}
