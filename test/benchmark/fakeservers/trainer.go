// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// trainJobController plays, on one worker, the TrainJob controller: a job is Complete a fixed time after it could run
// for the first time. It also plays the garbage collector: an object that is deleted in the foreground is removed at
// once, because nothing depends on it.
type trainJobController struct {
	store  *store
	runFor time.Duration

	mu     sync.Mutex
	timers map[types.UID]*time.Timer // Under mu.
	over   bool                      // Under mu.
}

func newTrainJobController(s *store, runFor time.Duration) *trainJobController {
	return &trainJobController{store: s, runFor: runFor, timers: map[types.UID]*time.Timer{}}
}

// see looks at each change of the worker.
func (c *trainJobController) see(e event) {
	switch {
	case e.after == nil:
		c.forget(e.before)
	case e.after.meta.GetDeletionTimestamp() != nil:
		go c.collect(e.after) // Not within the request that has deleted it.
	case e.kind == trainJobs && runs(e.after):
		c.start(e.after)
	}
}

// runs is true for a job that the controller of a cluster runs itself, and that has not ended.
func runs(o *object) bool {
	manager := trainjobs.ManagedBy(o.meta)
	return (manager == "" || manager == v1alpha1.ManagedByBuiltIn) && !trainjobs.Suspended(o.meta) && trainjobs.Terminal(o.meta) == nil
}

func (c *trainJobController) start(o *object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if uid := o.meta.GetUID(); !c.over && c.timers[uid] == nil {
		c.timers[uid] = time.AfterFunc(c.runFor, func() { c.complete(o) })
	}
}

func (c *trainJobController) forget(o *object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if timer := c.timers[o.meta.GetUID()]; timer != nil {
		timer.Stop()
		delete(c.timers, o.meta.GetUID())
	}
}

// complete says that a job has ended, unless it is another job by now, or is suspended.
func (c *trainJobController) complete(o *object) {
	c.forget(o)
	_, _ = c.store.update(o.kind, o.key, func(now *object) (map[string]any, error) { // It may be gone.
		content := fork(now.content())
		if now.meta.GetUID() != o.meta.GetUID() || !runs(now) {
			return content, nil
		}
		content["status"] = map[string]any{"conditions": []any{map[string]any{
			"type": "Complete", "status": "True", "reason": "AllJobsCompleted", "message": "played",
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}}}
		return content, nil
	})
}

// collect takes the garbage collector's finalizer off.
func (c *trainJobController) collect(o *object) {
	_, _ = c.store.update(o.kind, o.key, func(now *object) (map[string]any, error) { // It may be gone already.
		content := fork(now.content())
		if now.meta.GetUID() == o.meta.GetUID() {
			metadataOf(content).SetFinalizers(without(now.meta, metav1.FinalizerDeleteDependents))
		}
		return content, nil
	})
}

func without(meta *unstructured.Unstructured, finalizer string) []string {
	return slices.DeleteFunc(meta.GetFinalizers(), func(f string) bool { return f == finalizer })
}

// stop ends all timers.
func (c *trainJobController) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, timer := range c.timers {
		timer.Stop()
	}
}
