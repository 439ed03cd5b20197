// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/controllers/worker/trainjob"
	"github.com/trainyard/trainyard/internal/traces"
	"github.com/trainyard/trainyard/views/trace"
)

// traceStarts exports the spans of copies that only the worker knows when they have started, if the environment says
// where to.
func traceStarts(ctx context.Context, mgr ctrl.Manager, trainJobs *trainjob.Options) error {
	exporter, err := traces.FromEnvironment(ctx, "trainyard-worker-agent", mgr.GetLogger())
	if exporter == nil || err != nil {
		return err
	}
	live := mgr.GetAPIReader()
	trainJobs.Started = func(ctx context.Context, job *trainer.TrainJob, jobSet *jobsetv1alpha2.JobSet) {
		if tree, _ := trace.OfCopy(job, jobSet, nil); tree == nil {
			return
		}
		// The cache has pods without most of their times. This is one request to the worker for each start of a job.
		var pods corev1.PodList
		err := live.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetUIDKey: string(jobSet.UID)})
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "List pods for their trace")
			return
		}
		pointers := make([]*corev1.Pod, len(pods.Items))
		for i := range pods.Items {
			pointers[i] = &pods.Items[i]
		}
		tree, spans := trace.OfCopy(job, jobSet, pointers)
		exporter.Export(ctx, tree, spans)
	}
	return mgr.Add(exporter)
}
