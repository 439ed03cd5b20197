// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	schedulerplugins "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/internal/process"
	"github.com/trainyard/trainyard/internal/hubcache"
	"github.com/trainyard/trainyard/remote"
)

// recorderName is the reporting controller of Events.
const recorderName = "trainyard"

// run works until ctx ends. Then it returns nil.
func run(ctx context.Context, o options) error {
	log := o.SetUpLog()
	config, err := o.RestConfig("trainyard-manager")
	if err != nil {
		return err
	}
	required := []process.Requirement{process.TrainerAPI, process.TrainyardAPI}
	if o.kueueDispatcher {
		required = append(required, process.MultiKueueAPI)
	}
	if o.kueueAdmissionCheck {
		required = append(required, process.KueueAPI)
	}
	if err := o.AwaitAPIs(ctx, config, log, required...); err != nil || ctx.Err() != nil {
		return err
	}
	if err := o.Elect(config); err != nil {
		return err
	}
	config = withPacedEvents(config) // It is a copy: other clients write the lease.
	config.Wrap(remote.OnlyLeaderWrites(o.Leads))
	caches, err := hubcache.New(hubcache.Options{Config: config})
	if err != nil {
		return fmt.Errorf("set up caches: %w", err)
	}
	mgr, err := newManager(config, caches, o)
	if err != nil {
		return err
	}
	hubID, err := hubID(ctx, mgr.GetAPIReader())
	if err != nil {
		return err
	}
	if err := addControllers(ctx, mgr, caches, o, hubID, log); err != nil {
		return err
	}
	return process.Run(ctx, mgr)
}

func newManager(config *rest.Config, caches *hubcache.Hub, o options) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(errors.Join(
		clientgoscheme.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme),
		trainer.AddToScheme(scheme),
		// The trainer module's runtime framework needs these types.
		jobsetv1alpha2.AddToScheme(scheme), schedulerplugins.AddToScheme(scheme), volcano.AddToScheme(scheme),
		inventory.AddToScheme(scheme), // For Events about ClusterProfiles.
	))
	managerOptions := ctrl.Options{
		Scheme:    scheme,
		Cache:     hubCaches(caches, o.namespace, o.managedBy, o.kueueDispatcher),
		Client:    client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		NewClient: caches.NewClient,
	}
	o.Apply(&managerOptions)
	mgr, err := ctrl.NewManager(config, managerOptions)
	if err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}
	return mgr, nil
}

// hubID returns the UID of the hub's kube-system namespace.
func hubID(ctx context.Context, reader client.Reader) (types.UID, error) {
	var namespace corev1.Namespace
	if err := reader.Get(ctx, types.NamespacedName{Name: "kube-system"}, &namespace); err != nil {
		return "", fmt.Errorf("get Namespace %q: %w", "kube-system", err)
	}
	return namespace.UID, nil
}
