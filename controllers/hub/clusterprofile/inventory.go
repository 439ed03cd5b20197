// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterprofile

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// defaultSearchInterval is how often a hub is asked whether it has the kind ClusterProfile by now.
const defaultSearchInterval = 10 * time.Second

// InventoryOptions are the options of an Inventory. All are required but Selector and SearchInterval.
type InventoryOptions struct {
	Config     *rest.Config
	HTTPClient *http.Client
	// Namespace is the namespace whose ClusterProfiles are read.
	Namespace string
	// Selector selects ClusterProfiles. Nil: all.
	Selector labels.Selector
	// SearchInterval is how often a hub without the kind ClusterProfile is asked for it. 0: 10 s.
	SearchInterval time.Duration
	Logger         logr.Logger
}

// Inventory is a cache of the selected ClusterProfiles of one namespace. It is apart from the manager's caches, which
// must all be filled before the manager works: an inventory that cannot be read must not delay anything.
type Inventory struct {
	cache     cache.Cache
	namespace string
	search    time.Duration
	log       logr.Logger
	synced    chan struct{} // closed when everything that exists is known
	changed   func(name string)
	filled    func(ctx context.Context)
}

// NewInventory returns an Inventory for one Reconciler. Reconciler.Add starts it.
func NewInventory(o InventoryOptions) (*Inventory, error) {
	scheme := runtime.NewScheme()
	if err := inventory.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register ClusterProfile: %w", err)
	}
	profiles, err := cache.New(o.Config, cache.Options{
		HTTPClient: o.HTTPClient, Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields(),
		// Not ByObject: then New would ask for the kind, which the hub need not have yet.
		DefaultNamespaces: map[string]cache.Config{o.Namespace: {LabelSelector: o.Selector}},
	})
	if err != nil {
		return nil, fmt.Errorf("set up cache of ClusterProfiles: %w", err)
	}
	return &Inventory{cache: profiles, namespace: o.Namespace, search: cmp.Or(o.SearchInterval, defaultSearchInterval), log: o.Logger, synced: make(chan struct{})}, nil
}

// Synced says whether all profiles are known, so that one that is not there does not exist.
func (i *Inventory) Synced() bool {
	select {
	case <-i.synced:
		return true
	default:
		return false
	}
}

// NeedLeaderElection says that replicas which do not lead fill the cache too.
func (i *Inventory) NeedLeaderElection() bool { return false }

// Start fills the cache, as soon as the hub has the kind, and keeps it until ctx ends.
func (i *Inventory) Start(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- i.cache.Start(ctx) }()
	if err := i.fill(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return <-ended
}

func (i *Inventory) fill(ctx context.Context) error {
	informer, err := i.find(ctx)
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { i.notify(object) },
		UpdateFunc: func(before, after any) {
			if differs(before.(*inventory.ClusterProfile), after.(*inventory.ClusterProfile)) {
				i.notify(after)
			}
		},
		DeleteFunc: func(object any) { i.notify(object) },
	})
	if err != nil {
		return fmt.Errorf("watch ClusterProfiles: %w", err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return ctx.Err()
	}
	close(i.synced)
	i.filled(ctx)
	return nil
}

// find waits until the hub has the kind.
func (i *Inventory) find(ctx context.Context) (cache.Informer, error) {
	var informer cache.Informer
	said := false
	err := wait.PollUntilContextCancel(ctx, i.search, true, func(ctx context.Context) (bool, error) {
		var err error
		informer, err = i.cache.GetInformer(ctx, &inventory.ClusterProfile{}, cache.BlockUntilSynced(false))
		if err != nil && !said {
			i.log.Error(err, "Cannot watch ClusterProfiles: the WorkerClusters stay as they are, and it is tried again")
			said = true
		}
		return err == nil, nil
	})
	return informer, err
}

func (i *Inventory) notify(object any) {
	if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	if profile, ok := object.(*inventory.ClusterProfile); ok {
		i.changed(profile.Name)
	}
}
