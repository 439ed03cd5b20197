// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import "container/heap"

// worklist has the classes that the round still has to consider. It is a heap, with the class whose first job is the
// first in order on top. The first job of a class must not change while the class is in it.
type worklist []*class

func (a *worklist) add(c *class) {
	if !c.queued {
		c.queued = true
		heap.Push(a, c)
	}
}

func (a *worklist) pop() *class {
	c := heap.Pop(a).(*class)
	c.queued = false
	return c
}

// Len implements heap.Interface.
func (a worklist) Len() int { return len(a) }

// Less implements heap.Interface.
func (a worklist) Less(i, j int) bool { return a[i].head().isBefore(a[j].head()) }

// Swap implements heap.Interface.
func (a worklist) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push implements heap.Interface.
func (a *worklist) Push(x any) { *a = append(*a, x.(*class)) }

// Pop implements heap.Interface.
func (a *worklist) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return x
}
