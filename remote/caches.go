// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// The kinds of Kubeflow Trainer that are cached beside TrainJobs (package trainjobs).
var (
	TrainingRuntimeGVK        = trainjobs.GroupVersionKind.GroupVersion().WithKind("TrainingRuntime")
	ClusterTrainingRuntimeGVK = trainjobs.GroupVersionKind.GroupVersion().WithKind("ClusterTrainingRuntime")
)

var executionLeaseGVK = v1alpha1.GroupVersion.WithKind("ExecutionLease")

var jobSetGVK = schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}

const (
	resourceJobSets         = "jobsets"
	resourceTrainJobs       = "trainjobs"
	resourcePods            = "pods"
	resourceCapacityReports = "capacityreports"
	resourceExecutionLeases = "executionleases"
)

// IndexJobSet is the field index of pods by the name of their JobSet, in caches that have pods.
const IndexJobSet = "trainyard.jobset"

func jobSetOf(object client.Object) []string {
	if name := object.GetLabels()[jobsetv1alpha2.JobSetNameKey]; name != "" {
		return []string{name}
	}
	return nil
}

func metadataOf(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(gvk)
	return object
}

// cachedKind is a kind that the cache of a worker holds.
type cachedKind struct {
	resource string
	gvk      schema.GroupVersionKind
	scope    meta.RESTScope
	object   client.Object
	options  cache.ByObject
	// optional: a worker may forbid reading the kind, or lack it, and still be Connected.
	optional bool
	// told: whether the worker shows the optional kind is part of its status.
	told bool
	// served says whether a worker serves the optional kind. Where it does not, nobody asks for it. Nil: each does.
	served func(apis) bool
	// handler gets the events, for the inventory. Nil: nobody does.
	handler toolscache.ResourceEventHandler
}

func cachedKinds(opts Options, source capacitySource) []cachedKind {
	metadataOnly := cache.ByObject{Transform: stripMetadata}
	namespace := corev1.SchemeGroupVersion.WithKind("Namespace")
	jobSet := &unstructured.Unstructured{}
	jobSet.SetGroupVersionKind(jobSetGVK)
	kinds := append(slices.Clone(source.kinds), []cachedKind{
		{
			resource: resourceExecutionLeases, gvk: executionLeaseGVK, scope: meta.RESTScopeRoot, object: &v1alpha1.ExecutionLease{},
			options: cache.ByObject{
				Field:     fields.OneTermEqualSelector(metav1.ObjectNameField, opts.HubID),
				Transform: cache.TransformStripManagedFields(),
			},
			optional: true, told: true, // Without it nobody can fence copies there (Status.LeaseRefusal).
		},
		{
			resource: "clustertrainingruntimes", gvk: ClusterTrainingRuntimeGVK, scope: meta.RESTScopeRoot,
			object: metadataOf(ClusterTrainingRuntimeGVK), options: metadataOnly,
		},
		{
			resource: resourceJobSets, gvk: jobSetGVK, scope: meta.RESTScopeNamespace, object: jobSet,
			options:  cache.ByObject{Transform: stripJobSet},
			optional: true, // Old kubeconfigs do not permit JobSets: then JobSet details are missing.
		},
		{resource: "namespaces", gvk: namespace, scope: meta.RESTScopeRoot, object: metadataOf(namespace), options: metadataOnly},
		{
			resource: "trainingruntimes", gvk: TrainingRuntimeGVK, scope: meta.RESTScopeNamespace,
			object: metadataOf(TrainingRuntimeGVK), options: metadataOnly,
		},
		{
			resource: resourceTrainJobs, gvk: trainjobs.GroupVersionKind, scope: meta.RESTScopeNamespace, object: trainjobs.New(),
			options: cache.ByObject{
				Label:     labels.SelectorFromSet(labels.Set{v1alpha1.LabelHub: opts.HubID}),
				Transform: trainjobs.Strip,
			},
		},
	}...)
	counted := func(kind cachedKind) bool { return kind.gvk == kueues.KindWorkload.GVK() }
	if opts.Workloads && !slices.ContainsFunc(kinds, counted) { // Quota is counted from all Workloads.
		kinds = append(kinds, cachedWorkloads())
	}
	return kinds
}

// cachedWorkloads are the Workloads that a MultiKueue has created.
func cachedWorkloads() cachedKind {
	ofMultiKueue, err := labels.NewRequirement(kueues.KeyOrigin, selection.Exists, nil)
	utilruntime.Must(err)
	kind := cachedQuota(kueues.KindWorkload)
	kind.options.Label = labels.NewSelector().Add(*ofMultiKueue)
	return kind
}

// cachedQuota is a kind of Kueue. Without it the quota is not known, or no worker is nominated to MultiKueue, but the
// hub looks after the jobs there.
func cachedQuota(kind kueues.Kind) cachedKind {
	return cachedKind{
		resource: kind.Resource(), gvk: kind.GVK(), scope: scopeOf(kind.Namespaced()), object: kind.New(),
		options: cache.ByObject{Transform: kueues.Strip}, optional: true, told: true,
	}
}

func scopeOf(namespaced bool) meta.RESTScope {
	if namespaced {
		return meta.RESTScopeNamespace
	}
	return meta.RESTScopeRoot
}

// cacheScheme has the types that are cached as Go types. The other kinds are unstructured, or metadata only. All workers
// share it: a scheme takes 30 KB.
var cacheScheme = sync.OnceValues(func() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(corev1.AddToScheme(scheme), resourceapi.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
})

// caches are the informers of one worker.
type caches struct {
	cache.Cache
	scheme *runtime.Scheme
	// mapper knows the cached kinds.
	mapper meta.RESTMapper
	guard  guard
	// ctx is the life of the informers. running counts their goroutines.
	ctx     context.Context
	running sync.WaitGroup
	// informers are the informers of the required resources, by resource.
	informers map[string]cache.Informer
	// optional are the informers of the optional kinds.
	optional map[schema.GroupVersionKind]cache.Informer
	// handled are the inventory's event handlers by resource. A worker is Connected only once the required ones are done.
	handled  map[string]toolscache.ResourceEventHandlerRegistration
	required []toolscache.ResourceEventHandlerRegistration
}

// newCaches makes the caches of a worker without I/O. All kinds are known, so it needs no discovery. Controllers can
// get the cache before the worker has answered for the first time.
func newCaches(of *Cluster, config *rest.Config, transport reflectors, mapper meta.RESTMapper) (*caches, error) {
	ctx, kinds, log := of.ctx, of.kinds, of.opts.Logger
	scheme, err := cacheScheme()
	if err != nil {
		return nil, err
	}
	c := &caches{
		scheme: scheme, mapper: mapper, guard: of.panicked, ctx: ctx,
		informers: map[string]cache.Informer{}, optional: map[schema.GroupVersionKind]cache.Informer{},
		handled: map[string]toolscache.ResourceEventHandlerRegistration{},
	}
	c.Cache, err = cache.New(config, cache.Options{
		HTTPClient: httpClient(transport), Scheme: scheme, Mapper: c.mapper, ReaderFailOnMissingInformer: true,
		NewInformer: func(source toolscache.ListerWatcher, object runtime.Object, _ time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			gvk, err := apiutil.GVKForObject(object, scheme)
			utilruntime.Must(err) // The mapper has been asked about it.
			is := func(kind cachedKind) bool { return kind.gvk == gvk }
			return newInformer(&kinds[slices.IndexFunc(kinds, is)], source, object, indexers, c)
		},
		// An interrupted watch is no error here. The state and its message say what is wrong.
		DefaultWatchErrorHandler: func(_ context.Context, r *toolscache.Reflector, err error) {
			optional := func(kind cachedKind) bool { return kind.optional && kind.gvk.Kind == r.Name() }
			if slices.ContainsFunc(kinds, optional) && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) {
				// Cluster.answered has logged it once.
				return
			}
			log.V(1).Info("Reflector has to start again", "type", r.TypeDescription(), "reason", err.Error())
		},
	})
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(kinds, isPods) {
		if err := c.IndexField(ctx, &corev1.Pod{}, IndexJobSet, jobSetOf); err != nil {
			return nil, fmt.Errorf("index pods: %w", err)
		}
	}
	for _, kind := range kinds {
		if kind.served == nil {
			if err := c.watch(ctx, &kind); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// Start starts the informers. It returns when the life of the caches has ended, and so have their goroutines.
func (c *caches) Start(ctx context.Context) error {
	err := c.Cache.Start(ctx)
	c.running.Wait()
	return err
}

// run runs a function of an informer in a goroutine.
func (c *caches) run(f func(context.Context)) {
	c.running.Go(func() { f(c.ctx) })
}

// watch makes the informer of a kind.
func (c *caches) watch(ctx context.Context, kind *cachedKind) error {
	informer, err := c.GetInformer(ctx, kind.object, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("make informer of %s: %w", kind.resource, err)
	}
	switch {
	case kind.served != nil: // Only its handler needs it.
	case kind.optional:
		c.optional[kind.gvk] = informer
	default:
		c.informers[kind.resource] = informer
	}
	return c.handle(kind, informer)
}

// serve makes the informers of optional kinds that the worker serves.
func (c *caches) serve(ctx context.Context, kinds []cachedKind, found apis) error {
	for _, kind := range kinds {
		if kind.served == nil || c.handled[kind.resource] != nil || !kind.served(found) {
			continue
		}
		if err := c.watch(ctx, &kind); err != nil {
			return err
		}
	}
	return nil
}

// handle gives the inventory the events that it needs.
func (c *caches) handle(kind *cachedKind, informer cache.Informer) error {
	if kind.handler == nil {
		return nil
	}
	handled, err := informer.AddEventHandler(kind.handler)
	if err != nil {
		return fmt.Errorf("handle events of %s: %w", kind.resource, err)
	}
	c.handled[kind.resource] = handled
	if !kind.optional {
		c.required = append(c.required, handled)
	}
	return nil
}

// capacityListed says whether the inventory has handled all objects of the first lists, but of kinds that the worker
// refuses to show.
func (c *caches) capacityListed(refusal func(resource string) int) bool {
	for resource, handled := range c.handled {
		if !handled.HasSynced() && refusal(resource) == 0 {
			return false
		}
	}
	return true
}

// Get reads from the cache. It does not wait until an optional kind is listed: that may never happen.
func (c *caches) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(object, c.scheme)
	if err != nil {
		return fmt.Errorf("read from the worker's caches: %w", err)
	}
	if informer := c.optional[gvk]; informer != nil && !informer.HasSynced() {
		return ErrNotListed
	}
	return c.Cache.Get(ctx, key, object, opts...)
}

// WaitForCacheSync waits until all required kinds are listed. It returns false if the context ends first.
func (c *caches) WaitForCacheSync(ctx context.Context) bool {
	listed := make([]toolscache.InformerSynced, 0, len(c.informers))
	for _, informer := range c.informers {
		listed = append(listed, informer.HasSynced)
	}
	return toolscache.WaitForCacheSync(ctx.Done(), listed...)
}

// pending returns the required resources that are not listed yet, sorted.
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

// wait waits until everything required is listed and counted. It returns false if the context ends first.
func (c *caches) wait(ctx context.Context) bool {
	return c.WaitForCacheSync(ctx) && awaitHandled(ctx, c.required)
}

// awaitHandled waits until event handlers have had all objects of the first lists. It returns false if the context ends
// first.
func awaitHandled(ctx context.Context, handled []toolscache.ResourceEventHandlerRegistration) bool {
	synced := make([]toolscache.InformerSynced, 0, len(handled))
	for _, h := range handled {
		synced = append(synced, h.HasSynced)
	}
	return toolscache.WaitForCacheSync(ctx.Done(), synced...)
}

func staticMapper(kinds []cachedKind) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range kinds {
		plural := kind.gvk.GroupVersion().WithResource(kind.resource)
		singular := kind.gvk.GroupVersion().WithResource(strings.ToLower(kind.gvk.Kind))
		mapper.AddSpecific(kind.gvk, plural, singular, kind.scope)
	}
	return mapper
}

// newClients returns a client that reads from the caches and a client that reads from the API server.
func newClients(config *rest.Config, opts Options, transport callers, from *caches, kinds []cachedKind) (cached, live client.Client, err error) {
	httpClient := httpClient(transport)
	dynamic, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, nil, err
	}
	mapper := meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{from.mapper, dynamic}}
	cached, err = client.New(config, client.Options{
		HTTPClient: httpClient, Scheme: opts.Scheme, Mapper: mapper,
		Cache: &client.CacheOptions{Reader: from, Unstructured: true, DisableFor: readLive(kinds)},
	})
	if err != nil {
		return nil, nil, err
	}
	live, err = client.New(config, client.Options{HTTPClient: httpClient, Scheme: opts.Scheme, Mapper: mapper})
	return cached, live, err
}

// readLive returns the kinds that a client with caches reads from the API server: pods, if the hub does not cache them.
// Such reads are rare and select the pods of one job, so they are cheap.
func readLive(kinds []cachedKind) []client.Object {
	if slices.ContainsFunc(kinds, isPods) {
		return nil
	}
	return []client.Object{&corev1.Pod{}}
}

func isPods(kind cachedKind) bool { return kind.resource == resourcePods }
