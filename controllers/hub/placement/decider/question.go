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

// ask leaves a question to the next pass. The caller holds mu here, and must not hold it in wait.
func (d *Decider) ask(ctx context.Context, by types.NamespacedName, answer func()) question {
	q := question{by: by, answer: answer, answered: make(chan struct{}), ended: ctx.Done()}
	d.questions = append(d.questions, q)
	d.Changed()
	return q
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

// answerQuestions is the end of a pass. The caller holds mu.
func (d *Decider) answerQuestions() {
	for _, q := range d.questions {
		select {
		case <-q.ended:
		default:
			d.without(q.answer)
			close(q.answered)
		}
	}
	d.questions = nil
}
