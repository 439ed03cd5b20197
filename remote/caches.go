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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// The kinds of Kubeflow Trainer that are cached beside TrainJobs (package trainjobs).
var (
	TrainingRuntimeGVK        = trainjobs.GroupVersionKind.GroupVersion().WithKind("TrainingRuntime")
	ClusterTrainingRuntimeGVK = trainjobs.GroupVersionKind.GroupVersion().WithKind("ClusterTrainingRuntime")
)

// optionalTypes are the optional kinds as a reflector names them.
var optionalTypes = []string{
	jobSetGVK.String(), fmt.Sprintf("%T", &v1alpha1.CapacityReport{}), fmt.Sprintf("%T", &v1alpha1.ExecutionLease{}),
}

var executionLeaseGVK = v1alpha1.GroupVersion.WithKind("ExecutionLease")

var jobSetGVK = schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}

const (
	resourceJobSets         = "jobsets"
	resourcePods            = "pods"
	resourceCapacityReports = "capacityreports"
	resourceExecutionLeases = "executionleases"
)

// optional are the resources that a worker need not let us read, and which hold up nothing. What is said of JobSets is left out then:
// kubeconfigs are older than the wish to. Without a CapacityReport there is no capacity (capacity.Reported), but the jobs there
// are still looked after. Without an ExecutionLease nothing there can be fenced (Status.LeaseRefusal).
func optional(resource string) bool {
	return resource == resourceJobSets || resource == resourceCapacityReports || resource == resourceExecutionLeases
}

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

// cachedKind is a kind that the cache of every worker holds.
type cachedKind struct {
	resource string
	gvk      schema.GroupVersionKind
	scope    meta.RESTScope
	object   client.Object
	options  cache.ByObject
}

func cachedKinds(hubID string, source capacitySource) []cachedKind {
	metadataOnly := cache.ByObject{Transform: stripMetadata}
	namespace := corev1.SchemeGroupVersion.WithKind("Namespace")
	jobSet := &unstructured.Unstructured{}
	jobSet.SetGroupVersionKind(jobSetGVK)
	return append(source.kinds, []cachedKind{
		{resourceExecutionLeases, executionLeaseGVK, meta.RESTScopeRoot, &v1alpha1.ExecutionLease{}, cache.ByObject{
			Field:     fields.OneTermEqualSelector(metav1.ObjectNameField, hubID),
			Transform: cache.TransformStripManagedFields(),
		}},
		{"clustertrainingruntimes", ClusterTrainingRuntimeGVK, meta.RESTScopeRoot, metadataOf(ClusterTrainingRuntimeGVK), metadataOnly},
		{resourceJobSets, jobSetGVK, meta.RESTScopeNamespace, jobSet, cache.ByObject{Transform: stripJobSet}},
		{"namespaces", namespace, meta.RESTScopeRoot, metadataOf(namespace), metadataOnly},
		{"trainingruntimes", TrainingRuntimeGVK, meta.RESTScopeNamespace, metadataOf(TrainingRuntimeGVK), metadataOnly},
		{"trainjobs", trainjobs.GroupVersionKind, meta.RESTScopeNamespace, trainjobs.New(), cache.ByObject{
			Label:     labels.SelectorFromSet(labels.Set{v1alpha1.LabelHub: hubID}),
			Transform: trainjobs.Strip,
		}},
	}...)
}

// cacheScheme has the types that are cached as such. The others are unstructured, or metadata only.
func cacheScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
}

// caches are the informers of one worker.
type caches struct {
	cache.Cache
	scheme *runtime.Scheme
	// informers of what a worker must let us read, by resource.
	informers map[string]cache.Informer
	// optional informers, by kind.
	optional map[schema.GroupVersionKind]cache.Informer
	// handled are the handlers of the inventory, and required those of them without which there is no connection. They have to have
	// seen everything too.
	handled, required []toolscache.ResourceEventHandlerRegistration
}

// newCaches makes the caches of a worker without any I/O: all kinds are known, so that no discovery is needed. The same cache
// can be had by controllers before the worker has answered for the first time.
func newCaches(ctx context.Context, config *rest.Config, opts Options, transport reflectors, source capacitySource) (*caches, error) {
	kinds := cachedKinds(opts.HubID, source)
	scheme, err := cacheScheme()
	if err != nil {
		return nil, err
	}
	byObject := map[client.Object]cache.ByObject{}
	for _, kind := range kinds {
		byObject[kind.object] = kind.options
	}
	all, err := cache.New(config, cache.Options{
		HTTPClient: httpClient(transport), Scheme: scheme, Mapper: staticMapper(kinds), ByObject: byObject,
		ReaderFailOnMissingInformer: true,
		// Interrupted watches are no error here; the state and its message say what is wrong.
		DefaultWatchErrorHandler: func(_ context.Context, r *toolscache.Reflector, err error) {
			if slices.Contains(optionalTypes, r.TypeDescription()) && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) {
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
	if slices.ContainsFunc(kinds, isPods) {
		if err := all.IndexField(ctx, &corev1.Pod{}, IndexJobSet, jobSetOf); err != nil {
			return nil, fmt.Errorf("index pods: %w", err)
		}
	}
	c := &caches{Cache: all, scheme: scheme, informers: map[string]cache.Informer{}, optional: map[schema.GroupVersionKind]cache.Informer{}}
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
	return c, c.handle(source, kinds)
}

// handle has the inventory see the events that it needs.
func (c *caches) handle(source capacitySource, kinds []cachedKind) error {
	handlers := source.handlers
	for _, kind := range kinds {
		handler := handlers[kind.resource]
		if handler == nil {
			continue
		}
		informer, required := c.informers[kind.resource]
		if !required {
			informer = c.optional[kind.gvk]
		}
		handled, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("handle events of %s: %w", kind.resource, err)
		}
		c.handled = append(c.handled, handled)
		if required {
			c.required = append(c.required, handled)
		}
	}
	return nil
}

// capacityListed says whether the inventory has seen all that there was in the beginning.
func (c *caches) capacityListed() bool {
	for _, handled := range c.handled {
		if !handled.HasSynced() {
			return false
		}
	}
	return true
}

// Get reads from the cache. An optional kind that has not been listed is not waited for: that may take for ever.
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
	counted := make([]toolscache.InformerSynced, 0, len(c.required))
	for _, handled := range c.required {
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
func newClients(config *rest.Config, opts Options, transport callers, reader client.Reader, kinds []cachedKind) (cached, live client.Client, err error) {
	httpClient := httpClient(transport)
	dynamic, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, nil, err
	}
	mapper := meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{staticMapper(kinds), dynamic}}
	cached, err = client.New(config, client.Options{
		HTTPClient: httpClient, Scheme: opts.Scheme, Mapper: mapper,
		Cache: &client.CacheOptions{Reader: reader, Unstructured: true, DisableFor: readLive(kinds)},
	})
	if err != nil {
		return nil, nil, err
	}
	live, err = client.New(config, client.Options{HTTPClient: httpClient, Scheme: opts.Scheme, Mapper: mapper})
	return cached, live, err
}

// readLive are the kinds that a client with the caches reads from the API server: pods, where the hub holds none. They are read so
// seldom, and by name of the job, that it does not matter.
func readLive(kinds []cachedKind) []client.Object {
	if slices.ContainsFunc(kinds, isPods) {
		return nil
	}
	return []client.Object{&corev1.Pod{}}
}

func isPods(kind cachedKind) bool { return kind.resource == resourcePods }
