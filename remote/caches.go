// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// The kinds of Kubeflow Trainer that are cached beside TrainJobs (package trainjobs).
var (
	TrainingRuntimeGVK        = trainjobs.GroupVersionKind.GroupVersion().WithKind("TrainingRuntime")
	ClusterTrainingRuntimeGVK = trainjobs.GroupVersionKind.GroupVersion().WithKind("ClusterTrainingRuntime")
)

var jobSetGVK = schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}

const resourceJobSets = "jobsets"

// optional are the resources that a worker need not let us read: kubeconfigs are older than the wish to. What is said of them is
// left out then. They hold up nothing.
func optional(resource string) bool { return resource == resourceJobSets }

// errNotListed is of a kind that the worker has not let us list.
var errNotListed = errors.New("the worker has not listed this kind")

func metadataOf(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(gvk)
	return object
}

// cachedKind is a kind that the cache of every worker holds.
type cachedKind struct {
	resource string
	gvk      schema.GroupVersionKind
	scope    meta.RESTScope
	object   client.Object
	options  cache.ByObject
}

func cachedKinds(hubID string) []cachedKind {
	metadataOnly := cache.ByObject{Transform: stripMetadata}
	namespace := corev1.SchemeGroupVersion.WithKind("Namespace")
	jobSet := &unstructured.Unstructured{}
	jobSet.SetGroupVersionKind(jobSetGVK)
	return []cachedKind{
		{"clustertrainingruntimes", ClusterTrainingRuntimeGVK, meta.RESTScopeRoot, metadataOf(ClusterTrainingRuntimeGVK), metadataOnly},
		{resourceJobSets, jobSetGVK, meta.RESTScopeNamespace, jobSet, cache.ByObject{Transform: stripJobSet}},
		{"namespaces", namespace, meta.RESTScopeRoot, metadataOf(namespace), metadataOnly},
		{"nodes", corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot, &corev1.Node{}, cache.ByObject{Transform: stripNode}},
		{"pods", corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace, &corev1.Pod{}, cache.ByObject{Transform: stripPod}},
		{"trainingruntimes", TrainingRuntimeGVK, meta.RESTScopeNamespace, metadataOf(TrainingRuntimeGVK), metadataOnly},
		{"trainjobs", trainjobs.GroupVersionKind, meta.RESTScopeNamespace, trainjobs.New(), cache.ByObject{
			Label:     labels.SelectorFromSet(labels.Set{v1alpha1.LabelHub: hubID}),
			Transform: cache.TransformStripManagedFields(),
		}},
	}
}

// caches are the informers of one worker.
type caches struct {
	cache.Cache
	// informers of what a worker must let us read, by resource.
	informers map[string]cache.Informer
	// optional informers, by kind.
	optional map[schema.GroupVersionKind]cache.Informer
	// handled are the handlers of the inventory, which have to have seen everything too.
	handled []toolscache.ResourceEventHandlerRegistration
}

// newCaches makes the caches of a worker without any I/O: all kinds are known, so that no discovery is needed. The same cache
// can be had by controllers before the worker has answered for the first time.
func newCaches(ctx context.Context, config *rest.Config, opts Options, transport reflectors, inventory *Inventory) (*caches, error) {
	kinds := cachedKinds(opts.HubID)
	byObject := map[client.Object]cache.ByObject{}
	for _, kind := range kinds {
		byObject[kind.object] = kind.options
	}
	all, err := cache.New(config, cache.Options{
		HTTPClient: httpClient(transport), Scheme: opts.Scheme, Mapper: staticMapper(kinds), ByObject: byObject,
		ReaderFailOnMissingInformer: true,
		// Interrupted watches are no error here; the state and its message say what is wrong.
		DefaultWatchErrorHandler: func(_ context.Context, r *toolscache.Reflector, err error) {
			if r.TypeDescription() == jobSetGVK.String() && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) {
				return // Cluster.answered has said it, once.
			}
			opts.Logger.V(1).Info("Reflector has to start again", "type", r.TypeDescription(), "reason", err.Error())
		},
		// The informers hold the truth; a resync would only repeat it.
		SyncPeriod: ptr.To(365 * 24 * time.Hour),
	})
	if err != nil {
		return nil, err
	}
	c := &caches{Cache: all, informers: map[string]cache.Informer{}, optional: map[schema.GroupVersionKind]cache.Informer{}}
	for _, kind := range kinds {
		informer, err := all.GetInformer(ctx, kind.object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("make informer of %s: %w", kind.resource, err)
		}
		if optional(kind.resource) {
			c.optional[kind.gvk] = informer
		} else {
			c.informers[kind.resource] = informer
		}
	}
	for resource, handler := range map[string]toolscache.ResourceEventHandler{
		"nodes": nodeHandler(inventory), "pods": podHandler(inventory),
	} {
		handled, err := c.informers[resource].AddEventHandler(handler)
		if err != nil {
			return nil, fmt.Errorf("handle events of %s: %w", resource, err)
		}
		c.handled = append(c.handled, handled)
	}
	return c, nil
}

// Get reads from the cache. An optional kind that has not been listed is not waited for: that may take for ever.
func (c *caches) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if informer := c.optional[object.GetObjectKind().GroupVersionKind()]; informer != nil && !informer.HasSynced() {
		return errNotListed
	}
	return c.Cache.Get(ctx, key, object, opts...)
}

// WaitForCacheSync waits until all but the optional kinds have been listed, and returns false if the context ends before.
func (c *caches) WaitForCacheSync(ctx context.Context) bool {
	listed := make([]toolscache.InformerSynced, 0, len(c.informers))
	for _, informer := range c.informers {
		listed = append(listed, informer.HasSynced)
	}
	return toolscache.WaitForCacheSync(ctx.Done(), listed...)
}

// pending are the resources that have not been listed, sorted.
func (c *caches) pending() []string {
	var resources []string
	for resource, informer := range c.informers {
		if !informer.HasSynced() {
			resources = append(resources, resource)
		}
	}
	slices.Sort(resources)
	return resources
}

// wait waits until everything has been listed and counted, and returns false if the context ends before.
func (c *caches) wait(ctx context.Context) bool {
	counted := make([]toolscache.InformerSynced, 0, len(c.handled))
	for _, handled := range c.handled {
		counted = append(counted, handled.HasSynced)
	}
	return c.WaitForCacheSync(ctx) && toolscache.WaitForCacheSync(ctx.Done(), counted...)
}

// staticMapper knows the cached kinds.
func staticMapper(kinds []cachedKind) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range kinds {
		plural := kind.gvk.GroupVersion().WithResource(kind.resource)
		singular := kind.gvk.GroupVersion().WithResource(strings.ToLower(kind.gvk.Kind))
		mapper.AddSpecific(kind.gvk, plural, singular, kind.scope)
	}
	return mapper
}

// newClients returns a client that reads from the caches and one that reads from the API server.
func newClients(config *rest.Config, opts Options, transport callers, reader client.Reader) (cached, live client.Client, err error) {
	httpClient := httpClient(transport)
	dynamic, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, nil, err
	}
	mapper := meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{staticMapper(cachedKinds(opts.HubID)), dynamic}}
	cached, err = client.New(config, client.Options{
		HTTPClient: httpClient, Scheme: opts.Scheme, Mapper: mapper,
		Cache: &client.CacheOptions{Reader: reader, Unstructured: true},
	})
	if err != nil {
		return nil, nil, err
	}
	live, err = client.New(config, client.Options{HTTPClient: httpClient, Scheme: opts.Scheme, Mapper: mapper})
	return cached, live, err
}
