// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	schedulerplugins "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/internal/process"
	"github.com/trainyard/trainyard/controllers/garbagecollection"
	"github.com/trainyard/trainyard/controllers/mirror"
	"github.com/trainyard/trainyard/controllers/perworker"
	"github.com/trainyard/trainyard/controllers/placement"
	"github.com/trainyard/trainyard/controllers/workercluster"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/remote"
)

// recorderName is the reporting controller of Events.
const recorderName = "trainyard"

// run works until ctx ends, and returns nil then.
func run(ctx context.Context, o options) error {
	log := o.SetUpLog()
	config, err := o.RestConfig("trainyard-manager")
	if err != nil {
		return err
	}
	if err := process.Check(config, process.TrainerAPI, process.TrainyardAPI); err != nil {
		return err
	}
	mgr, err := newManager(config, o)
	if err != nil {
		return err
	}
	hubID, err := hubID(ctx, mgr.GetAPIReader())
	if err != nil {
		return err
	}
	if err := addControllers(ctx, mgr, o, hubID, log); err != nil {
		return err
	}
	return process.Run(ctx, mgr)
}

// newManager makes the controller manager of the hub. TrainJobs are cached unstructured, see package trainjobs; of Secrets only
// those of the manager's namespace are.
func newManager(config *rest.Config, o options) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(errors.Join(
		clientgoscheme.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme),
		trainer.AddToScheme(scheme),
		// The trainer module's runtime framework wants these to be known.
		jobsetv1alpha2.AddToScheme(scheme), schedulerplugins.AddToScheme(scheme), volcano.AddToScheme(scheme),
	))
	managerOptions := ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Secret{}: {Namespaces: map[string]cache.Config{o.namespace: {}}},
			},
		},
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	}
	o.Apply(&managerOptions)
	mgr, err := ctrl.NewManager(config, managerOptions)
	if err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}
	return mgr, nil
}

// hubID is the UID of the hub's kube-system namespace.
func hubID(ctx context.Context, reader client.Reader) (types.UID, error) {
	var namespace corev1.Namespace
	if err := reader.Get(ctx, types.NamespacedName{Name: "kube-system"}, &namespace); err != nil {
		return "", fmt.Errorf("get Namespace %q: %w", "kube-system", err)
	}
	return namespace.UID, nil
}

// addControllers wires the parts together.
func addControllers(ctx context.Context, mgr ctrl.Manager, o options, hubID types.UID, log logr.Logger) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.Dispatch{}, perworker.IndexLive, perworker.LiveClusterOf)
	if err != nil {
		return fmt.Errorf("index Dispatches: %w", err)
	}
	fleet, err := remote.NewFleet(ctx, remote.Options{
		HubID: string(hubID), Scheme: mgr.GetScheme(), RequestTimeout: o.workerTimeout,
		ProbeInterval: o.workerProbeInterval, QPS: o.workerQPS, Burst: o.workerBurst, Logger: log,
	})
	if err != nil {
		return fmt.Errorf("set up connections: %w", err)
	}
	members := perworker.NewSet(mgr.GetCache(), log, perWorkerControllers(mgr, o, hubID)...)

	placer, err := placement.NewReconciler(ctx, placement.Options{
		Hub: mgr.GetClient(), ManagedBy: o.managedBy, Connections: fleet,
		Recorder: mgr.GetEventRecorder(recorderName), Clock: clock.RealClock{},
	})
	if err != nil {
		return err
	}
	var workers *workercluster.Reconciler
	files := kubeconfigs.NewFileWatcher(log, func(path string) { workers.EnqueuePath(path) })
	workers = workercluster.NewReconciler(workercluster.Options{
		Hub: mgr.GetClient(), HubID: hubID, Fleet: fleet, Members: members, Files: files, Clock: clock.RealClock{},
		Credentials: &kubeconfigs.Loader{Reader: mgr.GetClient(), Namespace: o.namespace, Clock: clock.RealClock{}},
	})
	return errors.Join(mgr.Add(files), mgr.Add(members), placer.Add(mgr, fleet), workers.Add(mgr))
}

// perWorkerControllers are the kinds of controllers of which every connected worker gets its own.
func perWorkerControllers(mgr ctrl.Manager, o options, hubID types.UID) []perworker.Kind[*remote.Cluster] {
	policies := placement.Policies{Hub: mgr.GetClient()}
	return []perworker.Kind[*remote.Cluster]{{
		Name:        "mirror",
		Concurrency: o.workerConcurrency,
		Source:      mirror.JobSetEvents,
		New: func(worker v1alpha1.ClusterName, connection *remote.Cluster) reconcile.Reconciler {
			return mirror.NewReconciler(mirror.Options{
				Cluster: worker, ClusterID: connection.Status().ClusterID, HubID: string(hubID), Hub: mgr.GetClient(), HubReader: mgr.GetAPIReader(), Worker: connection,
				Policy: policies.For, Recorder: mgr.GetEventRecorder(recorderName), Clock: clock.RealClock{},
			})
		},
	}, {
		Name:        "garbagecollection",
		Concurrency: 1,
		New: func(worker v1alpha1.ClusterName, connection *remote.Cluster) reconcile.Reconciler {
			return garbagecollection.NewReconciler(garbagecollection.Options{
				Cluster: worker, Hub: mgr.GetClient(), Worker: connection, Retention: policies.Retention, Clock: clock.RealClock{},
			})
		},
	}}
}
