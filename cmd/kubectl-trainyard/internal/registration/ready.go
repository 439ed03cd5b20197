// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// poll is how often the hub is asked about a worker.
const poll = 500 * time.Millisecond

// workerCluster returns a WorkerCluster, or nil.
func (c *Cluster) workerCluster(ctx context.Context, objectName string) (*v1alpha1.WorkerCluster, error) {
	worker := &v1alpha1.WorkerCluster{}
	err := c.Get(ctx, types.NamespacedName{Name: objectName}, worker)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return worker, c.failed("get", workerCluster(objectName), err)
}

// AwaitReady waits until the manager has connected to the worker. It passes each new reason why not to tell.
func (j *Join) AwaitReady(ctx context.Context, tell func(reason string) error) error {
	last := ""
	for {
		worker, err := j.hub.workerCluster(ctx, j.options.Name)
		switch {
		case ctx.Err() != nil:
			return j.notReady(ctx, last)
		case err != nil:
			return err
		case worker == nil:
			return fmt.Errorf("WorkerCluster %q was deleted", j.options.Name)
		}
		condition := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
		if condition != nil {
			if condition.Status == metav1.ConditionTrue && condition.ObservedGeneration >= worker.Generation {
				return nil
			}
			if text := condition.Reason + ": " + condition.Message; text != last && condition.Status != metav1.ConditionTrue {
				last = text
				if err := tell(text); err != nil {
					return err
				}
			}
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return j.notReady(ctx, last)
		}
	}
}

// errTimeout is the cause of a context whose time is up.
var errTimeout = errors.New("time is up")

// Limited returns a context that ends after a time.
func Limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, errTimeout)
}

func (j *Join) notReady(ctx context.Context, last string) error {
	if !errors.Is(context.Cause(ctx), errTimeout) {
		return context.Cause(ctx)
	}
	if last == "" {
		return fmt.Errorf("the manager has said nothing about worker %q: see whether it runs: %s -n %s get deployments,pods",
			j.options.Name, j.hub.kubectl(), j.options.Namespace)
	}
	return fmt.Errorf("worker %q is registered, and not Ready: %s", j.options.Name, last)
}
