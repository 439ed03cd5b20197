// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// question is what the next pass is asked.
type question struct {
	// by is the waiting job that asks, empty if it is not one. The pass does not wake it.
	by types.NamespacedName
	// answer is called at the end of the pass, under the lock of the Decider. answered is closed after that.
	answer   func()
	answered chan struct{}
	// ended is closed when nobody waits for the answer any more.
	ended <-chan struct{}
}

// wait returns when the question has been answered, or an error when the context has ended.
func (q question) wait(ctx context.Context) error {
	select {
	case <-q.answered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// questions are what the next pass is asked. They are under the lock of the Decider.
type questions []question

// ask adds a question. The caller has a pass done, and must not hold the lock in wait.
func (all *questions) ask(ctx context.Context, by types.NamespacedName, answer func()) question {
	q := question{by: by, answer: answer, answered: make(chan struct{}), ended: ctx.Done()}
	*all = append(*all, q)
	return q
}

// answer is the end of a pass. No question is left.
func (all *questions) answer(decide func(func())) {
	for _, q := range *all {
		select {
		case <-q.ended:
		default:
			decide(q.answer)
			close(q.answered)
		}
	}
	*all = nil
}
